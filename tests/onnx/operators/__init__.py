"""Tests of `tatami/onnx/operators`."""
