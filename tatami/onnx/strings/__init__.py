"""Strings: operators on words and n-grams, words as numbers, tables over the words of a call."""
