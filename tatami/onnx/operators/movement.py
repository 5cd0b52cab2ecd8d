"""Movement: transpose, slice, pad, split, tile, blocks, triangles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tatami.core.algebra.order import greatest, is_always_at_most, least
from tatami.core.algebra.size_forms import settled_size
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, expr, floordiv
from tatami.core.scalar import scalar
from tatami.frontend.graph_api.slices import slice_bounds
from tatami.onnx.data_sizes import Entry, data_numbers, read_pads, read_positions
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import computable, integers, known, known_number, numbers
from tatami.onnx.values import Value


def _transpose(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    rank = len(m.tensors[x].shape)
    return [m.result(m.emit("permute", [x], {"perm": n.attr("perm", list(reversed(range(rank))))})[0])]


def _slice(m: Importer, n: OnnxNode) -> list[Value]:
    value = m.value(n.inputs[0])
    axes = numbers(m, n, 3, "axes")
    starts, ends = _positions(m, n, axes)
    steps = numbers(m, n, 4, "steps") or [1] * len(starts)
    if value.sizes is not None and len(starts) == 1:
        a, b = starts[0].as_int(), ends[0].as_int()
        if a is not None and b is not None and steps[0] != 0:
            return [Value(sizes=value.sizes[a : b : steps[0]])]
    x = m.data(value)
    shape = m.tensors[x].shape
    axes = list(range(len(starts))) if axes is None else [a % len(shape) for a in axes]
    lows, highs, strides = [expr(0)] * len(shape), list(shape), [1] * len(shape)
    flips = []
    for a, start, end, step in zip(axes, starts, ends, steps, strict=True):
        first, last = _first(start, shape[a], step), _counted(end, shape[a])
        lows[a], highs[a], strides[a], reverse = slice_bounds(slice(first, last, step), shape[a], m.site)
        flips += [a] * reverse
    if flips:
        x = m.emit("flip", [x], {"axes": flips})[0]
    attrs: dict[str, Any] = {"starts": tuple(lows), "stops": tuple(highs), "steps": strides}
    return [m.result(_with_ones(m, m.emit("slice", [x], attrs)[0]))]


def _with_ones(m: Importer, x: str) -> str:
    """`x` with axes of size min(1, N) assumed to have size 1: a slice of one element of an open axis, which is assumed not
    to be empty."""
    return m.reshaped(x, tuple(ONE if settled_size(s) == ONE and is_always_at_most(s, ONE) else s for s in m.shape(x)))


def _positions(m: Importer, n: OnnxNode, axes: list[int] | None) -> list[tuple[Expr, ...]]:
    """The starts and ends of a slice; those that are data are read together, with the bounds that suit the step of each
    axis."""
    out: list[tuple[Expr, ...]] = []
    wanted: list[tuple[Entry, Expr, int]] = []
    places: list[int] = []
    for k, name in enumerate(("starts", "ends")):
        entries = data_numbers(m, n, k + 1) if name not in n.attrs else None
        out.append(integers(m, n, k + 1, name) or () if entries is None else ())
        if entries is not None:
            shape = m.shape(m.operand(n, 0))
            steps = numbers(m, n, 4, "steps") or [1] * len(entries)
            on = range(len(entries)) if axes is None else axes
            wanted += [(e, shape[a], -1 if s < 0 else 0) for e, a, s in zip(entries, on, steps, strict=True)]
            places += [k] * len(entries)
    for k, found in zip(places, read_positions(m, wanted), strict=True):
        out[k] += (found,)
    return out


def _first(bound: Expr, size: Expr, step: int) -> Expr:
    """The first position of a slice. A backward slice from before the axis begins at its first element (numpy's is empty)."""
    number = bound.as_int()
    if step < 0 and number is not None and number < -1:
        return greatest(0, size + number)
    return _counted(bound, size)


def _counted(bound: Expr, size: Expr) -> Expr:
    """A bound of a slice; numbers of 32 bits and more stand for one of the axis's ends, whatever its size."""
    number = bound.as_int()
    if number is None or -(2**31) < number < 2**31 - 1:
        return bound
    return size if number > 0 else -size - 1


def _pad(m: Importer, n: OnnxNode) -> list[Value]:
    stored = m.type_of(m.value(n.inputs[0])).dtype
    x = computable(m, m.data(m.value(n.inputs[0])))
    return [m.result(m.cast(_padded(m, n, x), stored))]


def _padded(m: Importer, n: OnnxNode, x: str) -> str:
    rank = len(m.tensors[x].shape)
    counts = data_numbers(m, n, 1) if "pads" not in n.attrs else None
    axes = numbers(m, n, 3, "axes")
    axes = list(range(rank)) if axes is None else [a % rank for a in axes]
    full = [(expr(0), expr(0))] * rank
    if counts is not None:
        sizes = [m.shape(x)[a] for a in axes]
        found = read_pads(m, list(zip(counts[: len(axes)], counts[len(axes) :], sizes, strict=True)))
        for a, widths in zip(axes, found, strict=True):
            full[a] = widths
    else:
        pads = integers(m, n, 1, "pads") or ()
        for i, a in enumerate(axes):
            full[a] = (pads[i], pads[i + len(axes)])
    attrs = {"pads": tuple(full), "mode": n.attr("mode", "constant")}
    if n.has(2) and m.known(m.value(n.inputs[2])) is None:
        if attrs["mode"] != "constant":
            return m.one("pad", [x], attrs)
        inside = m.one("full", [], {"shape": m.shape(x), "value": True, "dtype": DType.bool})
        fill = computable(m, m.operand(n, 2))
        fill = m.one("reshape", [fill], {"shape": ()}) if m.shape(fill) else fill
        return m.one("where", [m.one("pad", [inside], attrs), m.one("pad", [x], attrs), fill])
    value: Any = known(m, n, 2, "the fill value").reshape(()).item() if n.has(2) else n.attr("value", 0)
    return m.one("pad", [x], {**attrs, "value": scalar(value)})


def _split(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    shape = m.tensors[x].shape
    axis = n.attr("axis", 0) % len(shape)
    sizes = integers(m, n, 1, "split")
    if sizes is None:
        parts = n.attr("num_outputs", len(n.outputs))
        chunk = floordiv(shape[axis] + parts - 1, expr(parts))
        sizes = (*[chunk] * (parts - 1), shape[axis] - chunk * (parts - 1))
    whole = (*shape[:axis], sum(sizes[1:], sizes[0]), *shape[axis + 1 :])
    if n.has(1) and whole != shape and any(s.as_int() is None for s in sizes):
        x = m.one("reshape", [x], {"shape": whole})  # the sum of the parts' sizes is checked when they are known
    return [m.result(t) for t in m.emit("split", [x], {"axis": axis, "sizes": sizes})]


def _tile(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    return [m.result(m.emit("tile", [x], {"repeats": integers(m, n, 1, "repeats") or ()})[0])]


def _block(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        attrs = {"block": n.attr("blocksize"), "mode": n.attr("mode", "DCR")}
        return [m.result(m.one(op, m.operands(n), attrs))]

    return handler


def _trilu(m: Importer, n: OnnxNode) -> list[Value]:
    """Trilu; a diagonal that is data gives where(column >= row + k, x, 0)."""
    x = m.operand(n, 0)
    upper = bool(n.attr("upper", 1))
    if not n.has(1) or m.known(m.value(n.inputs[1])) is not None:
        k = known_number(m, n, 1, "k", 0)
        return [m.result(m.one("trilu", [x], {"upper": upper, "k": int(k)}))]
    shape = m.shape(x)
    k_tensor = m.operand(n, 1)
    if m.shape(k_tensor):
        k_tensor = m.one("reshape", [k_tensor], {"shape": ()})
    row = m.one("iota", [], {"shape": shape, "axis": len(shape) - 2})
    column = m.one("iota", [], {"shape": shape, "axis": len(shape) - 1})
    edge = m.one("add", [row, k_tensor])
    keep = m.one("ge" if upper else "le", [column, edge])
    return [m.result(m.one("where", [keep, x, m.number(0, m.dtype(x))]))]


def _center_crop_pad(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    wanted = integers(m, n, 1, "shape") or ()
    rank = len(m.shape(x))
    axes = [a % rank for a in n.attr("axes", list(range(rank)))]
    lows, highs = [expr(0)] * rank, list(m.shape(x))
    pads = [(expr(0), expr(0))] * rank
    for a, size in zip(axes, wanted, strict=True):
        have = m.shape(x)[a]
        crop, grow = greatest(0, have - size), greatest(0, size - have)
        lows[a] = floordiv(crop, expr(2))
        highs[a] = lows[a] + least(have, size)
        pads[a] = (floordiv(grow, expr(2)), grow - floordiv(grow, expr(2)))
    x = m.one("slice", [x], {"starts": tuple(lows), "stops": tuple(highs), "steps": (1,) * rank})
    return [m.result(m.one("pad", [x], {"pads": tuple(pads)}))]


def _dropout(m: Importer, n: OnnxNode) -> list[Value]:
    """Dropout. Inference: the operand, and a mask of True (before opset 10 of ones in the operand's dtype). Training uses
    Tatami's own random numbers."""
    value = m.value(n.inputs[0])
    training = bool(known_number(m, n, 2, "training_mode", False))
    ratio = float(known_number(m, n, 1, "ratio", 0.5)) if training else 0.0
    shape = m.type_of(value).shape
    if not training or ratio == 0.0:
        dtype = DType.bool if m.opset >= 10 else m.type_of(value).dtype
        every = {"shape": shape, "value": True if dtype == DType.bool else 1, "dtype": dtype}
        mask = m.one("full", [], every) if n.wants(1) else ""
        return [value, *([m.result(mask)] if mask else [])]
    from tatami.onnx.operators.creation import random_key

    stored = m.type_of(value).dtype
    x = computable(m, m.data(value))
    drawn = m.one("uniform", [random_key(m, n)], {"shape": shape, "dtype": DType.fp32})
    mask = m.one("ge", [drawn, m.number(ratio, DType.fp32)])
    kept = m.one("mul", [x, m.number(1.0 / (1.0 - ratio), m.dtype(x))])
    return [
        m.result(m.cast(m.one("where", [mask, kept, m.number(0, m.dtype(x))]), stored)),
        m.result(mask if m.opset >= 10 else m.cast(mask, stored)),
    ]


MOVEMENT: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Transpose": _transpose,
    "Slice": _slice,
    "Pad": _pad,
    "Split": _split,
    "Tile": _tile,
    "DepthToSpace": _block("depth_to_space"),
    "SpaceToDepth": _block("space_to_depth"),
    "Trilu": _trilu,
    "CenterCropPad": _center_crop_pad,
    "Dropout": _dropout,
}
"""Handlers of this file by operator."""
