"""Tests of `tatami/runtime/cpu`."""
