"""Tests of `tatami/frontend/operations`."""
