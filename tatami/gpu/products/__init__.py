"""Kernels of one product: the bodies for SM80, SM90 and plain threads, their frame, TMA descriptors, split k and stream-K."""
