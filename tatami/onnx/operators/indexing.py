"""Indexing by tensors, and operators whose result size is data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr, product
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice, computable, integers, numbers, unsupported
from tatami.onnx.values import Value

_COMBINE = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _combine(m: Importer, n: OnnxNode) -> str:
    return _COMBINE[choice(m, n, "reduction", "none", tuple(_COMBINE))]


def _gather_elements(m: Importer, n: OnnxNode) -> list[Value]:
    x, index = m.operands(n)
    axis = n.attr("axis", 0) % len(m.shape(x))
    return [m.result(m.one("gather", [x, _within(m, index, m.shape(x), axis)], {"axis": axis}))]


def _within(m: Importer, index: str, shape: Shape, axis: int) -> str:
    """The index in the data's sizes where these are numbers and the index's are open: assumed to be equal (D2.6)."""
    if len(shape) != len(m.shape(index)):
        return index
    pairs = enumerate(zip(m.shape(index), shape, strict=True))
    return m.reshaped(
        index, tuple(t if a != axis and s.as_int() is None and t.as_int() is not None else s for a, (s, t) in pairs)
    )


def _gather_nd(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("gather_nd", m.operands(n), {"batch": n.attr("batch_dims", 0)}))]


def _scatter(m: Importer, n: OnnxNode) -> list[Value]:
    x, index, updates = m.operands(n)
    attrs = {"axis": n.attr("axis", 0) % len(m.shape(x)), "op": _combine(m, n)}
    return [m.result(m.one("scatter", [x, index, updates], attrs))]


def _scatter_nd(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("scatter_nd", m.operands(n), {"op": _combine(m, n)}))]


def _tensor_scatter(m: Importer, n: OnnxNode) -> list[Value]:
    """TensorScatter, a cache update: rows of `update` are written to write_indices[b] + j along the axis, cyclic or not."""
    cache, update = m.operand(n, 0), m.operand(n, 1)
    shape = m.shape(update)
    axis = n.attr("axis", -2) % len(shape)
    place = m.one("iota", [], {"shape": shape, "axis": axis})
    if n.has(2):
        first = m.cast(m.operand(n, 2), DType.i64)
        first = m.one("unsqueeze", [first], {"axes": list(range(1, len(shape)))})
        place = m.joined("add", place, first)
    if choice(m, n, "mode", "linear", ("linear", "circular")) == "circular":
        place = m.one("mod", [place, m.one("size", [], {"value": m.shape(cache)[axis]})])
    stored = m.dtype(cache)
    operands = [computable(m, cache), place, computable(m, update)]
    return [m.result(m.cast(m.one("scatter", operands, {"axis": axis}), stored))]


def _one_hot(m: Importer, n: OnnxNode) -> list[Value]:
    depth = m.known(m.value(n.inputs[1]))
    sizes = integers(m, n, 1, "depth") if depth is None else (expr(int(np.asarray(depth).reshape(-1)[0])),)
    assert sizes is not None
    index = m.cast(m.operand(n, 0), DType.i64)
    return [m.result(m.one("one_hot", [index, m.operand(n, 2)], {"depth": sizes[0], "axis": n.attr("axis", -1)}))]


def _nonzero(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("nonzero", m.operands(n), {"size": m.fresh_size("NZ")}))]


def _compress(m: Importer, n: OnnxNode) -> list[Value]:
    """Compress; a condition shorter than the axis leaves the rest out."""
    x, keep = m.operands(n)
    axis = n.attr("axis")
    shape = m.shape(x)
    if axis is None:
        x = m.one("reshape", [x], {"shape": (product(shape),)})
        shape, axis = m.shape(x), 0
    axis %= len(shape)
    count = m.shape(keep)[0]
    if count != shape[axis]:
        stops = (*shape[:axis], count, *shape[axis + 1 :])
        x = m.one("slice", [x], {"starts": (0,) * len(shape), "stops": stops})
    return [m.result(m.one("compress", [x, keep], {"size": m.fresh_size("K"), "axis": axis}))]


def _unique(m: Importer, n: OnnxNode) -> list[Value]:
    attrs = {"size": m.fresh_size("U"), "axis": n.attr("axis"), "sorted": bool(n.attr("sorted", 1))}
    return [m.result(t) for t in m.emit("unique", m.operands(n), {k: v for k, v in attrs.items() if v is not None})]


def _reverse_sequence(m: Importer, n: OnnxNode) -> list[Value]:
    attrs = {"time_axis": n.attr("time_axis", 0), "batch_axis": n.attr("batch_axis", 1)}
    return [m.result(m.one("reverse_sequence", m.operands(n), attrs))]


def _non_max_suppression(m: Importer, n: OnnxNode) -> list[Value]:
    attrs: dict[str, object] = {"size": m.fresh_size("B"), "center": bool(n.attr("center_point_box", 0))}
    operands = [m.operand(n, 0), m.operand(n, 1), "", "", ""]
    if not n.has(2):
        return [Value(array=np.zeros((0, 3), np.int64))]
    for k, (name, kind) in enumerate((("max_per_class", int), ("iou_threshold", float), ("score_threshold", float)), 2):
        known = m.known(m.value(n.inputs[k])) if n.has(k) else None
        if known is not None:
            attrs[name] = kind(np.asarray(known).reshape(-1)[0])
        elif n.has(k):
            operands[k] = m.rank_0(m.operand(n, k))
    if attrs.get("max_per_class") == 0:
        return [Value(array=np.zeros((0, 3), np.int64))]
    while not operands[-1]:
        operands.pop()
    return [m.result(m.one("non_max_suppression", operands, attrs))]


def _col2im(m: Importer, n: OnnxNode) -> list[Value]:
    """Col2Im: [N, C*k, L] windows added up into [N, C, image]."""
    x = m.operand(n, 0)
    image, block = integers(m, n, 1, "image_shape") or (), numbers(m, n, 2, "block_shape") or []
    rank = len(block)
    stride, dilation = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
    pads = n.attr("pads", [0] * (2 * rank))
    whole = [s + pads[i] + pads[i + rank] for i, s in enumerate(image)]
    counts = []
    for i in range(rank):
        reach = (whole[i] - (block[i] - 1) * dilation[i] - 1).as_int()
        if reach is None:
            raise unsupported(m, "Col2Im of an image whose size is a symbol", "give the image shape as numbers")
        counts.append(reach // stride[i] + 1)
    cells = int(np.prod(block))
    batch, channels = m.shape(x)[0], (m.shape(x)[1].as_int() or 0) // max(cells, 1)
    windows = m.one("reshape", [x], {"shape": (batch * channels, *block, *counts)})
    attrs = {"size": (batch * channels, *whole), "kernel": block, "stride": stride, "dilation": dilation}
    out = m.one("fold", [windows], attrs)
    starts, stops = (0, *pads[:rank]), (batch * channels, *(pads[i] + s for i, s in enumerate(image)))
    out = m.one("slice", [out], {"starts": starts, "stops": stops})
    return [m.result(m.one("reshape", [out], {"shape": (batch, channels, *image)}))]


INDEXING: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "OneHot": _one_hot,
    "NonZero": _nonzero,
    "Compress": _compress,
    "Unique": _unique,
    "ReverseSequence": _reverse_sequence,
    "NonMaxSuppression": _non_max_suppression,
    "Col2Im": _col2im,
}
"""Handlers of this file by operator."""
