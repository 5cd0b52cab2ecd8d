"""Tests of `tatami/frontend/rewrites`."""
