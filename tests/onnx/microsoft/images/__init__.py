"""Tests of `tatami/onnx/microsoft/images`."""
