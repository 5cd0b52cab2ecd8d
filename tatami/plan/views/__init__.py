"""Views of one plan: what it shows by itself, for later layers too. Its threads, registers and shared memory, and its cut of
the blocks of k."""
