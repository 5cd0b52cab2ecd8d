"""C text of the routines that products call: the micro-kernel, narrow integers, AMX tiles."""
