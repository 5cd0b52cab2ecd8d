"""Kernels of two products (attention): bodies for SM80 and SM90, and the parts when keys are shared out."""
