"""Tests of `tatami/core/drawing`."""
