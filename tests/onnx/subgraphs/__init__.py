"""Tests of `tatami/onnx/subgraphs`."""
