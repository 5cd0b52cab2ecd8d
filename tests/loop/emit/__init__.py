"""Tests of `tatami/loop/emit`."""
