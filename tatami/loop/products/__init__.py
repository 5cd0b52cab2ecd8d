"""Template of products: operands packed in panels, the register-tiled micro-kernel, and tile-wise transposes."""
