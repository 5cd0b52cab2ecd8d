"""Tests of `tatami/gpu/proof`."""
