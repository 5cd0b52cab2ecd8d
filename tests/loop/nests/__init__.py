"""Tests of `tatami/loop/nests`."""
