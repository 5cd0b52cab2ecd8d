"""Two products in one kernel."""
