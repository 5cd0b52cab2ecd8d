"""Kernels without a product: groups of threads take points through all phases; sorts; custom bodies."""
