"""Reductions of a product that begin in its epilogue, in blocks of a fixed width (decision 0026).

The only part of the layer that knows a property of the target.
"""
