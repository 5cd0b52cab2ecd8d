"""Numpy meaning of single steps of `tiny.run`: native routines, and products summed without the product in memory."""
