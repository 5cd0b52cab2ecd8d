"""Computation of nodes with small constant operands while importing: axes and shapes are often their results.

Range(0, Size(Shape(x)), 1)   ->   [0, 1, 2]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.algebra.visit import free_vars
from tatami.core.numbers.numerics import cast
from tatami.frontend.run import run_operation
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value, is_text_array

SMALL = 1024
"""Maximum elements of a folded operand or result; larger constants are left to the setup program."""
_NEVER = ("Constant", "Identity", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial")


def fold(m: Importer, n: OnnxNode, handler: Callable[[Importer, OnnxNode], list[Value] | None]) -> list[Value] | None:
    """The constant results of a node, or None if it is not small and constant."""
    if n.op in _NEVER or not n.inputs:
        return None
    codes = m.known(m.value(n.inputs[0])) if n.op == "DequantizeLinear" else None
    if codes is not None and (codes.ndim > 1 or codes.dtype == np.int32):
        return None  # weights and biases stay codes, however few they are: sums of integers take them so
    known: dict[str, Value] = {}
    for name in n.inputs:
        if name:
            array = m.known(m.value(name))
            if array is None or array.size > SMALL or is_text_array(array):
                return None
            known[name] = Value(array=array)
    scratch = Importer(m.import_nodes, m.opset, m.functions, values=known, site=m.site, beside=m.beside)
    results = handler(scratch, n)
    if results is None or not _is_small(scratch, results):
        return None
    return [Value(array=a) for a in _evaluate(scratch, results)]


def _is_small(scratch: Importer, results: list[Value]) -> bool:
    if any(not v.is_tensor or v.is_text or v.keys is not None for v in results):
        return False
    for kind in scratch.tensors.values():
        total = 1
        for size in kind.shape:
            if free_vars(size):
                return False
            total *= size.as_int() or 0
        if total > SMALL:
            return False
    return True


def _evaluate(scratch: Importer, results: list[Value]) -> list[np.ndarray]:
    arrays = {name: tensor.array for name, tensor in scratch.constants.items()}
    for node in scratch.nodes:
        types = [scratch.tensors[o] for o in node.outputs]
        found = run_operation(node, [arrays[i] if i else None for i in node.inputs], types, {})
        for output, array, kind in zip(node.outputs, found, types, strict=True):
            arrays[output] = cast(array, kind.dtype, "declared")
    out = []
    for value in results:
        known = scratch.known(value)
        out.append(known if known is not None else arrays[value.tensor])
    return out
