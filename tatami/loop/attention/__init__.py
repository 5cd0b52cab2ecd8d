"""Template of attention: two products in one pass over blocks of keys."""
