"""Shape operators and movement. Integers that describe shapes are followed as size expressions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.expr import ONE, Expr, exact_div, expr, floordiv, minimum, product, shape_text
from tatami.onnx.data_sizes import data_numbers, read_expansion, read_shape
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import integers, numbers
from tatami.onnx.values import Value


def _constant(m: Importer, n: OnnxNode) -> list[Value]:
    for name, dtype in (
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_float", np.float32),
        ("value_floats", np.float32),
    ):
        if name in n.attrs:
            return [Value(array=np.array(n.attrs[name], dtype))]
    for name in ("value", "sparse_value"):
        if name in n.attrs:
            return [Value(array=np.asarray(n.attrs[name]))]
    for name in ("value_string", "value_strings"):
        if name in n.attrs:
            return [Value(array=np.array(n.attrs[name], object))]
    raise fail("UnsupportedModel", m.site, f"a Constant of kind {', '.join(n.attrs) or 'none'}", "use a tensor")


def _shape(m: Importer, n: OnnxNode) -> list[Value]:
    shape = m.type_of(m.value(n.inputs[0])).shape
    return [Value(sizes=shape[n.attr("start", 0) : n.attr("end", len(shape))])]


def _size(m: Importer, n: OnnxNode) -> list[Value]:
    return [Value(sizes=(product(m.type_of(m.value(n.inputs[0])).shape),), rank=0)]


def _identity(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.value(n.inputs[0])]


def _squeeze(m: Importer, n: OnnxNode) -> list[Value]:
    value = m.value(n.inputs[0])
    if value.sizes is not None and len(value.sizes) == 1:
        return [Value(sizes=value.sizes, rank=0)]
    x = m.data(value)
    shape = m.tensors[x].shape
    axes = numbers(m, n, 1, "axes")
    if axes is None:
        axes = [i for i, s in enumerate(shape) if s == ONE]
        for s in shape:
            if s.as_int() is None:  # an open axis remains, and is assumed not to have size 1
                m.assume(minimum(2, s), expr(2))
    return [m.result(m.emit("squeeze", [x], {"axes": [a % len(shape) for a in axes]})[0])] if axes else [value]


def _unsqueeze(m: Importer, n: OnnxNode) -> list[Value]:
    value = m.value(n.inputs[0])
    axes = numbers(m, n, 1, "axes") or []
    if value.sizes is not None and value.rank == 0 and len(axes) == 1:
        return [Value(sizes=value.sizes, rank=1)]
    x = m.data(value)
    rank = len(m.tensors[x].shape) + len(axes)
    return [m.result(m.emit("unsqueeze", [x], {"axes": sorted(a % rank for a in axes)})[0])]


def _concat(m: Importer, n: OnnxNode) -> list[Value]:
    values = [m.value(i) for i in n.inputs]
    if any(v.sizes is not None for v in values) and all(v.sizes is None or v.rank == 1 for v in values):
        sizes = [m.sizes(v) for v in values]
        if all(s is not None for s in sizes):
            return [Value(sizes=tuple(e for s in sizes if s is not None for e in s))]
    tensors = [m.data(v) for v in values]
    rank = len(m.tensors[tensors[0]].shape)
    return [m.result(m.emit("concat", tensors, {"axis": n.attr("axis") % rank})[0])]


def _reshape(m: Importer, n: OnnxNode) -> list[Value]:
    value = m.value(n.inputs[0])
    counts = data_numbers(m, n, 1)
    if counts is not None:
        x = m.data(value)
        shape = read_shape(m, counts, m.shape(x), allow_zero=bool(n.attr("allowzero", 0)))
        return [m.result(m.one("reshape", [x], {"shape": shape}))]
    wanted = integers(m, n, 1, "shape") or ()
    if value.sizes is not None and _keeps(wanted, len(value.sizes)):
        return [Value(sizes=value.sizes, rank=len(wanted))]
    x = m.data(value)
    return [
        m.result(m.emit("reshape", [x], {"shape": resolve_shape(m, m.tensors[x].shape, wanted, n.attr("allowzero", 0))})[0])
    ]


def _keeps(wanted: Sequence[Expr], count: int) -> bool:
    """True if a reshape to `wanted` keeps `count` sizes a list, or a single one a scalar."""
    return count == 1 if not wanted else len(wanted) == 1 and wanted[0].as_int() in (-1, count)


def resolve_shape(m: Importer, shape: Sequence[Expr], wanted: Sequence[Expr], allow_zero: int = 0) -> tuple[Expr, ...]:
    """The shape of a Reshape: 0 copies a size unless `allow_zero`, -1 stands for the remaining elements."""
    out = [shape[i] if s == 0 and not allow_zero and i < len(shape) else s for i, s in enumerate(wanted)]
    unknown = [i for i, s in enumerate(out) if s == -1]
    if len(unknown) > 1:
        raise fail("AxisSizeMismatch", m.site, "a reshape with two sizes of -1", "leave at most one size open")
    if unknown:
        rest = product(s for i, s in enumerate(out) if i != unknown[0])
        total = product(shape)
        size = exact_div(total, rest)
        out[unknown[0]] = size if size is not None else floordiv(total, rest)
    return tuple(out)


def _flatten(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    shape = m.tensors[x].shape
    axis = n.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [m.result(m.emit("reshape", [x], {"shape": (product(shape[:axis]), product(shape[axis:]))})[0])]


def _expand(m: Importer, n: OnnxNode) -> list[Value]:
    from tatami.frontend.operation import right_aligned

    x = m.data(m.value(n.inputs[0]))
    shape = m.tensors[x].shape
    counts = data_numbers(m, n, 1)
    wanted = read_expansion(m, counts, shape) if counts is not None else integers(m, n, 1, "shape") or ()
    to = right_aligned([shape, tuple(wanted)], assume=True)
    if to is None:
        raise fail(
            "BroadcastMismatch",
            m.site,
            f"Expand of {shape_text(shape)} to {shape_text(tuple(wanted))}",
            "expand axes of size 1 only",
        )
    return [m.result(m.expand(x, to))]


def _gather(m: Importer, n: OnnxNode) -> list[Value]:
    value, index = m.value(n.inputs[0]), m.value(n.inputs[1])
    known = m.known(index)
    if value.sizes is not None and known is not None and known.ndim <= 1:
        bad = [int(i) for i in known.reshape(-1) if not -len(value.sizes) <= i < len(value.sizes)]
        if bad:
            why = f"Gather of element {bad[0]} of {len(value.sizes)} sizes"
            raise fail("AxisOutOfRange", m.site, why, f"give an index in 0..{len(value.sizes) - 1}")
        picked = tuple(value.sizes[int(i)] for i in known.reshape(-1))
        return [Value(sizes=picked, rank=known.ndim)]
    x = m.data(value)
    axis = n.attr("axis", 0) % len(m.tensors[x].shape)
    return [m.result(m.emit("take", [x, m.data(index)], {"axis": axis})[0])]


def _constant_of_shape(m: Importer, n: OnnxNode) -> list[Value]:
    shape = integers(m, n, 0, "shape") or ()
    value = np.asarray(n.attr("value", np.zeros(1, np.float32))).reshape(())
    constant = m.add_constant(value)
    return [m.result(m.emit("expand", [constant], {"shape": shape, "dims": ()})[0] if shape else constant)]


SHAPE = {
    "Constant": _constant,
    "Shape": _shape,
    "Size": _size,
    "Identity": _identity,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Expand": _expand,
    "Gather": _gather,
    "ConstantOfShape": _constant_of_shape,
}
"""Handlers of this file by operator."""
