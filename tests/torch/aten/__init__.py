"""Tests of `tatami/torch/aten`."""
