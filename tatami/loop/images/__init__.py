"""Templates of windows and convolutions: planes, rows used in place, Winograd tiles."""
