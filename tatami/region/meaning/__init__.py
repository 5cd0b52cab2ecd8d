"""Numpy meaning of a Region: lets as arrays over axes, accesses, sums of products."""
