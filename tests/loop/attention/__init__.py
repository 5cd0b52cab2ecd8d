"""Tests of `tatami/loop/attention`."""
