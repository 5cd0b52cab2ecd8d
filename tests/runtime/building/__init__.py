"""Tests of `tatami/runtime/building`."""
