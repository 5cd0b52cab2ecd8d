"""Tests of `tatami/core/algebra`."""
