"""Facts about index expressions: ranges, proofs, inverses, substitutions, the text form."""
