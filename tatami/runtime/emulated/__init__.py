"""Programs on the emulated GPU."""
