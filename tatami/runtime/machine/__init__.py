"""This machine as a Target: its description, its measured rates, and target names."""
