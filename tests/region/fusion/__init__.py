"""Tests of `tatami/region/fusion`."""
