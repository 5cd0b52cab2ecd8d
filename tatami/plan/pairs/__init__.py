"""Plans of two products in one GPU kernel (attention): candidates, limits, simulated and estimated seconds."""
