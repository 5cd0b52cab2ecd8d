"""From expressions to statements: values at a point or in lanes, ranges without conditions, names. Every template uses it."""
