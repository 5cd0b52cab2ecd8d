"""Tests of `tatami.quantization`."""
