"""Tests of `tatami/region/views`."""
