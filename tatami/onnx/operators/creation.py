"""Tensors without operands: ranges, identity matrices, random numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.tensor import dtype_of, numpy_dtype
from tatami.onnx.arithmetic import Num
from tatami.onnx.data_sizes import EXACT, read_range, size_in_float, size_range
from tatami.onnx.importer import Importer, element_dtype
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import data_dependent, unsupported
from tatami.onnx.values import Value


def _range(m: Importer, n: OnnxNode) -> list[Value]:
    values = [m.value(i) for i in n.inputs]
    arrays = [m.known(v) for v in values]
    if all(a is not None for a in arrays):
        start, limit, delta = (np.asarray(a).reshape(()) for a in arrays)
        if delta == 0:
            raise unsupported(m, "Range by steps of 0", "give a delta that is not 0")
        count = max(0, int(np.ceil((limit - start) / delta)))
        return [Value(array=(start + np.arange(count) * delta).astype(start.dtype))]
    sizes = [m.sizes(v) for v in values]
    kinds = [np.asarray(v.array).dtype if v.array is not None else numpy_dtype(v.dtype) for v in values]
    counted = _counted_in_float(m, values)
    if counted is not None:
        return [counted]
    if any(s is None for s in sizes) and m.reads_sizes:
        return [m.result(read_range(m, *(Num(m, m.rank_0(m.data(v))) for v in values)).tensor)]
    for position, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        if arrays[position] is None and (size is None or kind.kind != "i"):
            raise data_dependent(m, n, ("start", "limit", "delta")[position], position)
    if any(s is None for s in sizes):
        raise data_dependent(m, n, "limit", 1)
    first, last, step = (s[0] for s in sizes if s is not None)
    by = step.as_int()
    if not by:
        raise data_dependent(m, n, "delta", 2)
    dtype = dtype_of(np.zeros(0, kinds[0]))
    assert dtype is not None, "integers of the model"
    return [m.result(size_range(m, first, last, by, dtype).tensor)]


def _counted_in_float(m: Importer, values: list[Value]) -> Value | None:
    """A range of floats from a whole number, by whole numbers, to a size that a Cast made a float; None for another."""
    start, limit, delta = values
    first, by = m.known(start), m.known(delta)
    dtype = None if first is None else dtype_of(first)
    if first is None or by is None or m.known(limit) is not None or dtype is None or not dtype.is_float:
        return None
    begin, step = float(first.reshape(())), float(by.reshape(()))
    if not begin.is_integer() or not step.is_integer() or not step or max(abs(begin), abs(step)) > EXACT:
        return None
    last = size_in_float(m, m.rank_0(m.data(limit)))
    if last is None:
        return None
    return m.result(size_range(m, expr(int(begin)), last, int(step), DType.i64).cast(dtype).tensor)


def _eye_like(m: Importer, n: OnnxNode) -> list[Value]:
    kind = m.type_of(m.value(n.inputs[0]))
    dtype = element_dtype(n.attr("dtype"), m.site) if "dtype" in n.attrs else kind.dtype
    row = m.one("iota", [], {"shape": kind.shape, "axis": 0, "start": n.attr("k", 0)})
    column = m.one("iota", [], {"shape": kind.shape, "axis": 1})
    return [m.result(m.cast(m.one("eq", [row, column]), dtype))]


def random_key(m: Importer, n: OnnxNode) -> str:
    """The key of a random node: its seed, or its position in the graph. Numbers repeat from run to run."""
    seed = n.attr("seed")
    value = len(m.nodes) + 1 if seed is None else int(np.float32(seed).view(np.uint32))
    return m.add_constant(np.array(value, np.uint64))


def _random(m: Importer, n: OnnxNode) -> list[Value]:
    like = m.type_of(m.value(n.inputs[0])) if n.op.endswith("Like") else None
    shape = like.shape if like is not None else tuple(expr(s) for s in n.attr("shape"))
    if "dtype" in n.attrs:
        dtype = element_dtype(n.attr("dtype"), m.site)
    else:
        dtype = like.dtype if like is not None else DType.fp32
    if n.op.startswith("RandomNormal"):
        op, low, high = "normal", n.attr("mean", 0.0), n.attr("scale", 1.0)
    else:
        op, low, high = "uniform", n.attr("low", 0.0), n.attr("high", 1.0)
    attrs = {"shape": shape, "low": float(low), "high": float(high), "dtype": dtype}
    return [m.result(m.one(op, [random_key(m, n)], attrs))]


def _multinomial(m: Importer, n: OnnxNode) -> list[Value]:
    """Multinomial: samples of unnormalised log probabilities, as the largest of x + Gumbel noise."""
    (x,) = m.operands(n)
    batch, classes = m.shape(x)
    shape = (batch, expr(n.attr("sample_size", 1)), classes)
    drawn = m.one("uniform", [random_key(m, n)], {"shape": shape, "low": 1e-7, "high": 1.0, "dtype": DType.fp32})
    noise = m.one("neg", [m.one("log", [m.one("neg", [m.one("log", [drawn])])])])
    logits = m.one("unsqueeze", [m.cast(x, DType.fp32)], {"axes": (1,)})
    chosen = m.one("argmax", [m.joined("add", logits, noise)], {"axis": 2})
    return [m.result(m.cast(chosen, element_dtype(n.attr("dtype", 6), m.site)))]


CREATION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Range": _range,
    "EyeLike": _eye_like,
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _random),
    "Multinomial": _multinomial,
}
"""Handlers of this file by operator."""
