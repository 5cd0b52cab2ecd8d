"""Tests of `tatami/onnx/images`."""
