"""Tests of `tatami/core/numbers`."""
