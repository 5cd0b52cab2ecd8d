"""Tests of `tatami/onnx/microsoft/quantization`."""
