"""Views of streaming pairs (attention): two products with operations on rows between them, and which keys a row sees."""
