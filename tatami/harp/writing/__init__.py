"""From values to text: names, expressions, operations, and line breaking."""
