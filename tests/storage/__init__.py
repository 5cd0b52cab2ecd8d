"""Documents, caches and `.tatami` files."""
