"""One node on its way into the graph: old forms, preconditions, its handler or its function, constant folding."""
