"""Tests of `tatami/runtime/machine`."""
