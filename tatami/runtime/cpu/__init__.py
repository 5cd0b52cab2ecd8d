"""Programs on the CPU: memory, calls of the entry, repeated calls, threads, packed weights."""
