"""Tests of `tatami/plan/gpu`."""
