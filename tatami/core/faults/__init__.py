"""Refusals: the table of diagnostic kinds, and checks of arguments, sizes and targets from outside."""
