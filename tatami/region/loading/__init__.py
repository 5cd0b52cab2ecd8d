"""Parts of the loader of Region documents: expressions, and what a document leaves out."""
