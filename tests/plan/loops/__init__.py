"""Tests of `tatami/plan/loops`."""
