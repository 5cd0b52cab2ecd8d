"""Operators of ONNX Runtime's own domains: what it writes when it saves an optimised model, what its quantisation and
transformer tools write, and what generators for it use. Their meaning is that of its documentation ("Contrib Operator
Schemas"); where the text leaves something open, ONNX Runtime's CPU kernels decide.

Each operator becomes the operations its plain form has, so that fusion finds the same kernels:

    BiasGelu(x, b)   ->   gelu(x + b)
    Attention        ->   matmul, add, split into heads, attention, heads joined

`table.py` lists every operator: taken, or why not; docs/onnx-microsoft.md is printed from it.
"""
