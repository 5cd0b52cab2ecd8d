"""Tests of `tatami/region/checks`."""
