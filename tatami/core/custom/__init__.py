"""Text of users' own kernels: formulas, bodies in C or CUDA, and the type that marks text as code."""
