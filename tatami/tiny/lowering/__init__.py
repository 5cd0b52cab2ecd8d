"""Lowering rules from frontend operations to tiny, by family. `tiny.lower` picks the rule of each node."""
