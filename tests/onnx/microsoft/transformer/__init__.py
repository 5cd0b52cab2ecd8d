"""Tests of `tatami/onnx/microsoft/transformer`."""
