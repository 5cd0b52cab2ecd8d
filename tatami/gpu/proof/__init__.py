"""Proof of synchronisation: the abstract machine of a kernel's protocol, its exhaustive search, and the checks of streams."""
