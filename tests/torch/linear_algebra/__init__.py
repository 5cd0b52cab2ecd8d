"""Tests of `tatami/torch/linear_algebra`."""
