"""Tests of `tatami/onnx/strings`."""
