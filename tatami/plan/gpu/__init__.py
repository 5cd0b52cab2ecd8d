"""Plans of one product on a GPU: tile shapes, limits of the machine, simulated and estimated seconds; the streaming
template."""
