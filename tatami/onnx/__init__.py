"""ONNX to frontend. Made from: a ModelProto; depends on `frontend` only.

Initialisers become const_pool inputs; integers that only say shapes (Shape, Gather, Concat, …) are followed as
size expressions and never become tensors; user names stay in the signature and in origins.
"""
