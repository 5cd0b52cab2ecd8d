"""Tests of `tatami/loop/passes`."""
