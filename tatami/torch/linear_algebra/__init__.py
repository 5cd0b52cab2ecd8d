"""Matrix factors, inverses and linear equations as loops of a frontend graph."""
