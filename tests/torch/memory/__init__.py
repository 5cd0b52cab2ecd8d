"""Memory of arguments and results of compiled programs."""
