"""Tests of `tatami/loop/products`."""
