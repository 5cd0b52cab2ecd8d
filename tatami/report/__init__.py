"""Reports about a compilation: what was decided and why, what is copied, pictures, and the comparison of all stages on one input."""
