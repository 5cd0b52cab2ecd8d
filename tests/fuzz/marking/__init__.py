"""Markers in strings of documents: the places, and the forms in which a document arrives."""
