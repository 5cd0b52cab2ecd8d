"""CPU candidates by template: packed products, convolutions, windows, operands used in place."""
