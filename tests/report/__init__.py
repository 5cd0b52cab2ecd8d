"""Copies, pictures, playback."""
