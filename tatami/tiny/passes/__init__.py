"""Passes of the normalisation: equations between sizes, simplification, constant work moved to `setup`, order and ids."""
