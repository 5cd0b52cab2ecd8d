"""Sequences, optional values and maps: their operators, and how they lie in the signature of a program."""
