"""Template of plain nests: phases, passes, reductions, scans, scatters."""
