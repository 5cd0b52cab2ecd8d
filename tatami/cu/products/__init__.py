"""CUDA text of kernels with products: frame, copies, tensor-core math, epilogue, and the two-product template."""
