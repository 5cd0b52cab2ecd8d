"""Rewrites of frontend modules before the lowering: calls put in place or specialised, scales folded, integer products, precision."""
