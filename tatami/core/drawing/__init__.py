"""Pictures of graphs: boxes in clusters, their placement in layers, and the printers for DOT and SVG."""
