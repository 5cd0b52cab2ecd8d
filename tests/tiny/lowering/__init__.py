"""Tests of `tatami/tiny/lowering`."""
