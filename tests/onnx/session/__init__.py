"""The drop-in session."""
