"""Tests of `tatami/torch/special_functions`."""
