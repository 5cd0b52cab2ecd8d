"""Campaigns of generated inputs, run as commands: ``python -m tests.fuzz.NAME --seeds a-b``. A share of each runs in CI."""
