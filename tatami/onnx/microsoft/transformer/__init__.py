"""Operators of transformers: attention in all its forms, caches, rotary embeddings, experts."""
