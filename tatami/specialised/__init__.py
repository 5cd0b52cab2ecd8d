"""Programs for the sizes of a call: one model, one program per tuple of sizes (or of values) that decides its structure."""
