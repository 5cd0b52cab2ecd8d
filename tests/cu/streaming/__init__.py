"""Tests of `tatami/cu/streaming`."""
