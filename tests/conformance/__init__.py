"""ONNX's own node cases, run on the compiled CPU target."""
