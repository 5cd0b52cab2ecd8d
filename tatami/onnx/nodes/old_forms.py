"""Conversion of nodes from versions before opset 14 to the form that handlers take (onnx/docs/Changelog.md).

Add(a, b; broadcast=1, axis=1)      ->   Add(a, Unsqueeze(b))
Pad(x; paddings=[..])               ->   Pad(x; pads=[..])
Tile(x, tiles, axis)                ->   Tile(x, repeats)

Handlers themselves read operands that were attributes before (Slice, Squeeze, TopK, …); forms that depend on the rank of an
operand are next to the handler (Softmax, PRelu).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from tatami.core.diagnostic import fail
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import known
from tatami.onnx.values import Value

FLOAT_MAX = float(np.finfo(np.float32).max)
"""Bound of a Clip of version 6 to 10 that names none: the largest fp32 number."""


def modern(m: Importer, n: OnnxNode) -> OnnxNode:
    """The node in the newest form; the node itself if it has that form."""
    rewrite = _OLD.get(n.op)
    return n if rewrite is None else rewrite(m, n)


def _with(n: OnnxNode, *, without: tuple[str, ...] = (), **attrs: Any) -> OnnxNode:
    return replace(n, attrs={**{k: v for k, v in n.attrs.items() if k not in without}, **attrs})


def _operand(m: Importer, n: OnnxNode, position: int, value: Value) -> OnnxNode:
    """The node with another operand at `position`, under a new name."""
    name = f"{n.op} {position}"
    while name in m.values:
        name += "'"
    m.values[name] = value
    inputs = [*n.inputs, *[""] * (position + 1 - len(n.inputs))]
    inputs[position] = name
    return replace(n, inputs=tuple(inputs))


def _limited_broadcast(m: Importer, n: OnnxNode) -> OnnxNode:
    """The second operand of opset 6 and older is aligned with axes of the first that begin at `axis`, by default the last
    ones."""
    if "broadcast" not in n.attrs and "axis" not in n.attrs:
        return n
    out = _with(n, without=("broadcast", "axis"))
    if not n.attr("broadcast", 0) or "axis" not in n.attrs:
        return out
    value = m.value(n.inputs[1])
    rank, own = len(m.type_of(m.value(n.inputs[0])).shape), len(m.type_of(value).shape)
    axis = n.attr("axis")
    after = rank - (axis + rank if axis < 0 else axis) - own
    if not 0 <= after <= rank - own:
        why = f"an operand of rank {own} at axis {axis} of one of rank {rank}"
        raise fail("InvalidAttribute", m.site, why, "give the first axis of the first operand that the second one has")
    if not after:
        return out
    if value.array is not None:
        return _operand(m, out, 1, Value(array=value.array.reshape(value.array.shape + (1,) * after)))
    wide = m.one("unsqueeze", [m.data(value)], {"axes": tuple(range(own, own + after))})
    return _operand(m, out, 1, m.result(wide))


def _batch_norm(m: Importer, n: OnnxNode) -> OnnxNode:
    """BatchNormalization before opset 14: a node with statistics as results is in training mode, unless `is_test` is set."""
    out = _with(n, without=("is_test",))
    if m.opset < 14 and not n.attr("is_test", 0) and any(n.wants(i) for i in range(1, 5)):
        return _with(out, training_mode=1)
    return out


def _dropout(m: Importer, n: OnnxNode) -> OnnxNode:
    """Dropout before opset 7 drops elements unless `is_test` is set; up to opset 12 the ratio is an attribute."""
    if "is_test" not in n.attrs and m.opset >= 7:
        return n
    if n.attr("is_test", 0):
        return _with(n, without=("is_test",))
    out = _operand(m, n, 1, Value(array=np.array(n.attr("ratio", 0.5), np.float32)))
    return _operand(m, _with(out, without=("is_test", "ratio")), 2, Value(array=np.array(True)))


def _cast(m: Importer, n: OnnxNode) -> OnnxNode:
    """Cast of version 1: the dtype is a word."""
    to = n.attr("to")
    if not isinstance(to, str):
        return n
    codes = dict(onnx.TensorProto.DataType.items())
    if to.upper() not in codes:
        raise fail("UnsupportedDType", m.site, f"a cast to {to!r}", f"use one of {', '.join(codes)}")
    return _with(n, to=codes[to.upper()])


def _clip(m: Importer, n: OnnxNode) -> OnnxNode:
    if not 6 <= m.opset < 11 or len(n.inputs) > 1:
        return n
    return replace(n, attrs={"min": -FLOAT_MAX, "max": FLOAT_MAX, **n.attrs})


def _concat(m: Importer, n: OnnxNode) -> OnnxNode:
    return _with(n, axis=1) if "axis" not in n.attrs else n


def _pad(m: Importer, n: OnnxNode) -> OnnxNode:
    return _with(n, without=("paddings",), pads=n.attr("paddings")) if "paddings" in n.attrs else n


def _selu(m: Importer, n: OnnxNode) -> OnnxNode:
    """Selu of version 1: its constants are rounded to four digits."""
    return replace(n, attrs={"alpha": 1.6732, "gamma": 1.0507, **n.attrs}) if m.opset < 6 else n


def _tile(m: Importer, n: OnnxNode) -> OnnxNode:
    """Tile of version 1 repeats one axis."""
    if m.opset >= 6 and len(n.inputs) < 3:
        return n
    rank = len(m.type_of(m.value(n.inputs[0])).shape)
    given = [np.asarray(known(m, n, i, what)).reshape(-1) for i, what in ((1, "tiles"), (2, "axis"))]
    if any(g.size != 1 or g.dtype.kind not in "iuf" for g in given):
        raise fail("InvalidDocument", m.site, "Tile whose tiles or axis is not one number", "give one number for each")
    tiles, axis = (int(g[0]) for g in given)
    if not -rank <= axis < rank:
        raise fail("AxisOutOfRange", m.site, f"Tile along axis {axis} of {rank} axes", "name an axis that exists")
    repeats = np.ones(rank, np.int64)
    repeats[axis] = tiles
    return _operand(m, replace(n, inputs=n.inputs[:1]), 1, Value(array=repeats))


def _upsample(m: Importer, n: OnnxNode) -> OnnxNode:
    """Upsample of version 1 scales the last two of four axes."""
    if n.attr("mode") == "bilinear":
        n = _with(n, mode="linear")
    if "height_scale" not in n.attrs and "width_scale" not in n.attrs:
        return n
    scales = [1.0, 1.0, float(n.attr("height_scale", 1.0)), float(n.attr("width_scale", 1.0))]
    return _with(n, without=("height_scale", "width_scale"), scales=scales)


def _gru(m: Importer, n: OnnxNode) -> OnnxNode:
    return _with(n, direction="forward") if n.attr("direction") == "foward" else n


_OLD: dict[str, Callable[[Importer, OnnxNode], OnnxNode]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"), _limited_broadcast),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Dropout": _dropout,
    "GRU": _gru,
    "Pad": _pad,
    "Selu": _selu,
    "Tile": _tile,
    "Upsample": _upsample,
}
