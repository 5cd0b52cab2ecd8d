"""Tests of `tatami/tiny/passes`."""
