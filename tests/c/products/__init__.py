"""Tests of `tatami/c/products`."""
