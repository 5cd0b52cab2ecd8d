"""Arithmetic as Tatami defines it: numpy's meaning of each scalar operation, small floats, decision trees."""
