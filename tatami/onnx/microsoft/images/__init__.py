"""Operators on images in ONNX Runtime's own layouts: blocks of channels, channels last."""
