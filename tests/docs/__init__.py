"""References of documentation and comments lead somewhere: citations, links, rows of the specification, the map."""
