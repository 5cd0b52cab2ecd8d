"""Tests of `tatami/plan/memory`."""
