"""Tests of `tatami/core/custom`."""
