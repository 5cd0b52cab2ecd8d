"""Tests of `tatami/core/files`."""
