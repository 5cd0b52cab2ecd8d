"""Tests of `tatami/c/kernels`."""
