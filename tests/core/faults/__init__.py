"""Tests of `tatami/core/faults`."""
