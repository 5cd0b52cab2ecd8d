"""Products of floats and narrow weights next to ONNX Runtime: `python -m benchmarks.narrow`."""
