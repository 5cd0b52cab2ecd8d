"""C text of one kernel: types, casts, scalar operations, index expressions, and the definitions they need."""
