"""ONNX operators on numbers, by family. `onnx.registry` joins the families into one table."""
