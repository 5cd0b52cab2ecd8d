"""Tests of `tatami/cu/products`."""
