"""Numpy meaning of each operation, by family. `frontend.run` runs whole graphs with it."""
