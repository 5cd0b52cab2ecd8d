"""Tests of `tatami/loop/images`."""
