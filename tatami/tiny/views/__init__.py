"""Facts that a program shows by itself, for every later layer."""
