"""Values in memory: layouts, conversions, operands packed once in `setup`, constants of called programs."""
