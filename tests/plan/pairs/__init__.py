"""Tests of `tatami/plan/pairs`."""
