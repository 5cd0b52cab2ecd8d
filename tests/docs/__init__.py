"""What documentation and comments refer to exists: citations, links, rows of the specification, the map."""
