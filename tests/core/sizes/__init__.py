"""Tests of `tatami/core/sizes`."""
