"""Fusion: which values share a kernel, chosen by estimated time, and the check of a partition that a user decided."""
