"""Values of size symbols: read off the shapes of a call, and checked against the conditions of a signature."""
