"""Shape operators and movement. Integers that describe shapes are followed as size expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tatami.core.bounds import is_nonneg
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.expr import ONE, Expr, exact_div, expr, floordiv, maximum, minimum, product
from tatami.onnx.importer import Importer, OnnxNode
from tatami.onnx.values import Value


def integers(m: Importer, n: OnnxNode, position: int, attribute: str) -> tuple[Expr, ...] | None:
    """A list of sizes from an attribute (old opsets) or an input; None when absent."""
    if attribute in n.attrs:
        given = n.attrs[attribute]
        return tuple(expr(int(v)) for v in (given if isinstance(given, list) else [given]))
    if len(n.inputs) <= position or not n.inputs[position]:
        return None
    sizes = m.sizes(m.value(n.inputs[position]))
    if sizes is None:
        raise data_dependent(m, n, attribute)
    return sizes


def numbers(m: Importer, n: OnnxNode, position: int, attribute: str) -> list[int] | None:
    """As `integers`, but constants."""
    sizes = integers(m, n, position, attribute)
    if sizes is None:
        return None
    out = [s.as_int() for s in sizes]
    if any(v is None for v in out):
        raise data_dependent(m, n, attribute)
    return [v for v in out if v is not None]


def data_dependent(m: Importer, n: OnnxNode, what: str) -> TatamiError:
    return fail(
        "UnsupportedModel", m.site, f"{n.op}: {what} depends on the values of a tensor",
        "make it a constant or a function of input shapes (for example by constant folding at export)",
    )  # fmt: skip


def _constant(m: Importer, n: OnnxNode) -> list[Value]:
    for name, dtype in (
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_float", np.float32),
        ("value_floats", np.float32),
    ):
        if name in n.attrs:
            return [Value(array=np.array(n.attrs[name], dtype))]
    if "value" in n.attrs:
        return [Value(array=np.asarray(n.attrs["value"]))]
    raise fail("UnsupportedModel", m.site, f"a Constant of kind {', '.join(n.attrs) or 'none'}", "use a numeric tensor")


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
    if any(v.sizes is not None for v in values):
        sizes = [m.sizes(v) for v in values]
        if all(s is not None for s in sizes):
            return [Value(sizes=tuple(e for s in sizes if s is not None for e in s))]
    tensors = [m.data(v) for v in values]
    rank = len(m.tensors[tensors[0]].shape)
    return [m.result(m.emit("concat", tensors, {"axis": n.attr("axis") % rank})[0])]


def _reshape(m: Importer, n: OnnxNode) -> list[Value]:
    value = m.value(n.inputs[0])
    wanted = integers(m, n, 1, "shape") or ()
    if value.sizes is not None and len(wanted) <= 1:
        return [Value(sizes=value.sizes, rank=len(wanted))]
    x = m.data(value)
    return [
        m.result(m.emit("reshape", [x], {"shape": resolve_shape(m, m.tensors[x].shape, wanted, n.attr("allowzero", 0))})[0])
    ]


def resolve_shape(m: Importer, shape: Sequence[Expr], wanted: Sequence[Expr], allow_zero: int = 0) -> tuple[Expr, ...]:
    """0 copies a size, -1 takes what is left."""
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


def _transpose(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    rank = len(m.tensors[x].shape)
    return [m.result(m.emit("permute", [x], {"perm": n.attr("perm", list(reversed(range(rank))))})[0])]


def _expand(m: Importer, n: OnnxNode) -> list[Value]:
    from tatami.frontend.operation import right_aligned, text

    x = m.data(m.value(n.inputs[0]))
    wanted = integers(m, n, 1, "shape") or ()
    shape = m.tensors[x].shape
    to = right_aligned([shape, tuple(wanted)])
    if to is None:
        raise fail(
            "BroadcastMismatch", m.site, f"Expand of {text(shape)} to {text(tuple(wanted))}", "expand axes of size 1 only"
        )
    return [m.result(x if to == shape else m.emit("expand", [x], {"shape": to})[0])]


def _gather(m: Importer, n: OnnxNode) -> list[Value]:
    value, index = m.value(n.inputs[0]), m.value(n.inputs[1])
    known = m.known(index)
    if value.sizes is not None and known is not None and known.ndim <= 1:
        picked = tuple(value.sizes[int(i)] for i in known.reshape(-1))
        return [Value(sizes=picked, rank=known.ndim)]
    x = m.data(value)
    axis = n.attr("axis", 0) % len(m.tensors[x].shape)
    return [m.result(m.emit("take", [x, m.data(index)], {"axis": axis})[0])]


def _slice(m: Importer, n: OnnxNode) -> list[Value]:
    value = m.value(n.inputs[0])
    starts, ends = integers(m, n, 1, "starts") or (), integers(m, n, 2, "ends") or ()
    axes = numbers(m, n, 3, "axes")
    steps = numbers(m, n, 4, "steps") or [1] * len(starts)
    if value.sizes is not None and len(starts) == 1:
        a, b = starts[0].as_int(), ends[0].as_int()
        if a is not None and b is not None:
            return [Value(sizes=value.sizes[a : b : steps[0]])]
    x = m.data(value)
    shape = m.tensors[x].shape
    axes = list(range(len(starts))) if axes is None else [a % len(shape) for a in axes]
    lows, highs, strides = [expr(0)] * len(shape), list(shape), [1] * len(shape)
    flips = []
    for a, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise fail("InvalidAttribute", m.site, f"a slice with step 0 on axis {a}", "use a step that is not 0")
        size = shape[a]
        if step < 0:  # reversed: element j of the flipped axis is size-1-j
            flips.append(a)
            start, end = size - 1 - _clamp_low(start, size, -1), size - 1 - _clamp_low(end, size, -1)
        else:
            start, end = _clamp_low(start, size, 0), _clamp_low(end, size, 0)
        low = minimum(start, size)
        lows[a], highs[a], strides[a] = (
            low,
            maximum(low, minimum(end, size)) if not is_nonneg(minimum(end, size) - low) else minimum(end, size),
            abs(step),
        )
    if flips:
        x = m.emit("flip", [x], {"axes": flips})[0]
    attrs: dict[str, Any] = {"starts": tuple(lows), "stops": tuple(highs), "steps": strides}
    return [m.result(m.emit("slice", [x], attrs)[0])]


def _clamp_low(value: Expr, size: Expr, low: int) -> Expr:
    """ONNX counts negative positions from the end and clamps to the axis."""
    number = value.as_int()
    if number is None:
        return value
    if number >= 0:
        return size + low if number >= 2**31 - 1 else minimum(value, size + low)
    return expr(low) if number <= -(2**31) else maximum(expr(low), size + number)


def _pad(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    rank = len(m.tensors[x].shape)
    pads = integers(m, n, 1, "pads") or ()
    axes = numbers(m, n, 3, "axes")
    axes = list(range(rank)) if axes is None else [a % rank for a in axes]
    full = [(expr(0), expr(0))] * rank
    for i, a in enumerate(axes):
        full[a] = (pads[i], pads[i + len(axes)])
    fill: Any = n.attr("value", 0)
    if len(n.inputs) > 2 and n.inputs[2]:
        known = m.known(m.value(n.inputs[2]))
        if known is None:
            raise data_dependent(m, n, "the fill value")
        fill = known.reshape(()).item()
    from tatami.core.scalar import scalar

    mode = n.attr("mode", "constant")
    return [m.result(m.emit("pad", [x], {"pads": tuple(full), "mode": mode, "value": scalar(fill)})[0])]


def _split(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    shape = m.tensors[x].shape
    axis = n.attr("axis", 0) % len(shape)
    sizes = integers(m, n, 1, "split")
    if sizes is None:
        parts = n.attr("num_outputs", len(n.outputs))
        chunk = floordiv(shape[axis] + parts - 1, expr(parts))
        sizes = (*[chunk] * (parts - 1), shape[axis] - chunk * (parts - 1))
    return [m.result(t) for t in m.emit("split", [x], {"axis": axis, "sizes": sizes})]


def _constant_of_shape(m: Importer, n: OnnxNode) -> list[Value]:
    shape = integers(m, n, 0, "shape") or ()
    value = np.asarray(n.attr("value", np.zeros(1, np.float32))).reshape(())
    constant = m.add_constant(value)
    return [m.result(m.emit("expand", [constant], {"shape": shape, "dims": ()})[0] if shape else constant)]


def _tile(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    return [m.result(m.emit("tile", [x], {"repeats": integers(m, n, 1, "repeats") or ()})[0])]


SHAPE = {
    "Constant": _constant,
    "Shape": _shape,
    "Size": _size,
    "Identity": _identity,
    "Dropout": _identity,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Expand": _expand,
    "Gather": _gather,
    "Slice": _slice,
    "Pad": _pad,
    "Split": _split,
    "ConstantOfShape": _constant_of_shape,
    "Tile": _tile,
}
