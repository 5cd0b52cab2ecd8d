"""Kernels of loop documents run by numpy, one statement after the other: what the text printed from them has to compute."""
