"""Checks of the verifier that others ask, too: conditions on sizes, and well-formed VIEW nodes."""
