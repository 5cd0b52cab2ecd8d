"""Tests of `tatami/frontend/graph_api`."""
