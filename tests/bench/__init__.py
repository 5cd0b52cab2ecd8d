"""Tests of `tatami/bench`."""
