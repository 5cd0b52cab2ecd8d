"""Operators of ONNX Runtime's own domains: those that it writes when it saves an optimised model, those of its quantisation
and transformer tools, and those used by its generators. Their meaning follows its documentation ("Contrib Operator
Schemas"); where the text leaves something open, ONNX Runtime's CPU kernels decide.

Each operator becomes the operations of its plain form, so that fusion finds the same kernels:

    BiasGelu(x, b)   ->   gelu(x + b)
    Attention        ->   matmul, add, split into heads, attention, heads joined

`table.py` lists every operator, with its import or the reason why it has none; docs/onnx-microsoft.md is printed from it.
"""
