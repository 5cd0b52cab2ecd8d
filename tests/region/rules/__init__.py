"""Tests of `tatami/region/rules`."""
