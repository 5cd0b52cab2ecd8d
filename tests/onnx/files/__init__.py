"""Tests of `tatami/onnx/files`."""
