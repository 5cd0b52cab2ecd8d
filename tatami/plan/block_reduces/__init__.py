"""Reductions of a product that begin in its epilogue, in blocks of a fixed width (decision 0026).

The target decides if a product begins them, so they stand apart from the rules of `region`; they are formed before plans are
chosen, so that every plan of the product has them.
"""
