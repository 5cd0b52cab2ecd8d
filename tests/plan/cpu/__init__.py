"""Tests of `tatami/plan/cpu`."""
