"""Tests of `tatami/tiny/loading`."""
