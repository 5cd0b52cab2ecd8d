"""Operators on quantised tensors: blocks of few bits, products, LSTM."""
