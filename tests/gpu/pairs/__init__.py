"""Tests of `tatami/gpu/pairs`."""
