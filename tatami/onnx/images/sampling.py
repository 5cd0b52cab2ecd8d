"""Sampling of an image between its pixels: GridSample, DeformConv. Positions are data, so every tap is a gather."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Literal, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice, unsupported
from tatami.onnx.values import Value

Edge: TypeAlias = Literal["zero", "clamp"]
Tap: TypeAlias = "tuple[Num, Num | None]"
"""An index (i64) along one axis, and its weight; None weighs 1."""
CUBIC = -0.75
"""Coefficient of Keys' cubic kernel (GridSample's)."""


def taps(at: Num, mode: str, place: Callable[[Num], Num]) -> list[Tap]:
    """The neighbours of fractional positions along one axis. `place`: function that moves an index inside, in floats."""
    if mode == "nearest":
        return [(place(at).cast(DType.i64), None)]
    base = at.fn("floor")
    t = at - base
    if mode == "linear":
        weights = [(0, t * -1.0 + 1.0), (1, t)]
    else:
        weights = [(-1, _far(t + 1.0)), (0, _near(t)), (1, _near(t * -1.0 + 1.0)), (2, _far(t * -1.0 + 2.0))]
    return [(place(base + float(j)).cast(DType.i64), w) for j, w in weights]


def _near(d: Num) -> Num:
    """Keys' cubic kernel at a distance in 0..1."""
    return (d * (CUBIC + 2.0) - (CUBIC + 3.0)) * d * d + 1.0


def _far(d: Num) -> Num:
    """Keys' cubic kernel at a distance in 1..2."""
    return ((d * CUBIC - 5.0 * CUBIC) * d + 8.0 * CUBIC) * d - 4.0 * CUBIC


def weighted(x: Num, axes: Sequence[Sequence[Tap]], batch: int, edge: Edge) -> list[Num]:
    """A term for each combination of taps: x is [batch.., D1..Dr, C], indices [batch.., P..], terms [batch.., P.., C]."""
    terms = []
    for combination in product(*axes):
        rank = len(combination[0][0].shape)
        columns = [i.tensor for i, _ in combination]
        index = x.m.one("stack", columns, {"axis": rank})
        term = Num(x.m, x.m.one("gather_nd", [x.tensor, index], {"batch": batch, "bounds": edge}))
        weight: Num | None = None
        for _, w in combination:
            if w is not None:
                weight = w if weight is None else weight * w
        terms.append(term if weight is None else term * weight.unsqueeze(rank).cast(term.dtype))
    return terms


def total(terms: Sequence[Num]) -> Num:
    """Sum of the terms, in their order."""
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    return out


def channels_last(x: Num, batch: int = 1) -> Num:
    """The image [batch.., C, D..] as [batch.., D.., C]."""
    rank = len(x.shape)
    return x.permute(*range(batch), *range(batch + 1, rank), batch)


def channels_first(x: Num, batch: int = 1) -> Num:
    """Points [batch.., P.., C] as [batch.., C, P..]."""
    rank = len(x.shape)
    return x.permute(*range(batch), rank - 1, *range(batch, rank - 1))


def _reflected(x: Num, low: Num | float, high: Num) -> Num:
    """Positions mirrored at low and high until they are between them."""
    span = high - low
    one_point = span.fn("le", 0.0)
    away = (x - low).fn("abs")
    turns = (away / one_point.where(span.fn("max", 1.0), span)).fn("floor")
    rest = away - turns * span
    odd = turns.fn("mod", 2.0).fn("ne", 0.0)
    inside = odd.where(rest * -1.0 + high, rest + low)
    return one_point.where(high, inside)


_GRID_MODES = {
    "linear": "linear", "nearest": "nearest", "cubic": "cubic", "bilinear": "linear", "bicubic": "cubic",
}  # fmt: skip
"""Interpolation by the attribute `mode`: the words of opset 20, then those of opset 16."""


def _grid_sample(m: Importer, n: OnnxNode) -> list[Value]:
    x, grid = (Num(m, t) for t in m.operands(n))
    mode = _GRID_MODES[choice(m, n, "mode", "linear", tuple(_GRID_MODES))]
    padding = choice(m, n, "padding_mode", "zeros", ("zeros", "border", "reflection"))
    align = bool(n.attr("align_corners", 0))
    dtype = x.dtype
    if dtype != DType.fp64:
        grid = grid.cast(DType.fp32)
    kind = grid.dtype
    rank, last = len(x.shape) - 2, len(grid.shape) - 1
    axes = []
    for d in range(rank):
        size = size_of(m, x.shape[2 + d], kind)
        at = grid.at(last, rank - 1 - d)
        at = (at + 1.0) * 0.5 * (size - 1.0) if align else ((at + 1.0) * size - 1.0) * 0.5
        if mode == "nearest":
            at = at.fn("round")
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        if padding == "border" and mode != "cubic":  # cubic taps are clamped one by one
            at = at.fn("max", 0.0).fn("min", size - 1.0)
        elif padding == "reflection":
            at = _reflected(at, low, high)

        def place(i: Num, low: float = low, high: Num = high) -> Num:
            return _reflected(i, low, high) if padding == "reflection" else i

        axes.append(taps(at, mode, place))
    wide = x if mode == "nearest" or dtype in (DType.fp32, DType.fp64) else x.cast(kind)
    terms = weighted(channels_last(wide), axes, 1, "zero" if padding == "zeros" else "clamp")
    return [m.result(channels_first(total(terms)).cast(dtype).tensor)]


def _deform_conv(m: Importer, n: OnnxNode) -> list[Value]:
    """DeformConv, a convolution whose taps are displaced by offsets: sampled columns, then one product per group."""
    names = m.operands(n)
    x, w, offset = (Num(m, t) for t in names[:3])
    if offset.dtype != DType.fp64:
        offset = offset.cast(DType.fp32)  # positions of 16 bits would move
    bias, mask = (Num(m, names[i]) if len(names) > i and names[i] else None for i in (3, 4))
    rank = len(x.shape) - 2
    kernel = [s.as_int() or 0 for s in w.shape[2:]]
    if not all(kernel):
        raise unsupported(m, "DeformConv whose kernel has no constant shape", "give the weight a constant shape")
    strides, dilations = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
    pads = n.attr("pads", [0] * (2 * rank))
    groups, parts = n.attr("group", 1), n.attr("offset_group", 1)
    batch, channels = x.shape[0], x.shape[1]
    out = offset.shape[2:]
    taps_count = 1
    for k in kernel:
        taps_count *= k
    places = offset.reshape(batch, parts, *kernel, rank, *out)
    shape: tuple[Expr, ...] = (batch, expr(parts), *map(expr, kernel), *out)
    axes = []
    for d in range(rank):
        tap = Num(m, m.one("iota", [], {"shape": shape, "axis": 2 + d})) * dilations[d]
        step = Num(m, m.one("iota", [], {"shape": shape, "axis": 2 + rank + d})) * strides[d]
        at = (tap + step - pads[d]).cast(offset.dtype) + places.at(2 + rank, d)
        axes.append(taps(at, "linear", lambda i: i))
    image = x.reshape(batch, parts, floordiv(channels, expr(parts)), *x.shape[2:])
    columns = channels_first(total(weighted(channels_last(image, 2), axes, 2, "zero")), 2)  # [N, parts, C', k.., out..]
    if mask is not None:
        columns = columns * mask.reshape(batch, parts, 1, *kernel, *out)
    points = expr(1)
    for s in out:
        points = points * s
    columns = columns.reshape(batch, groups, floordiv(channels, expr(groups)) * taps_count, points)
    rows = floordiv(w.shape[0], expr(groups))
    matrix = w.reshape(groups, rows, w.shape[1] * taps_count)
    y = Num(m, m.one("matmul", [matrix.unsqueeze(0).fn("expand", shape=(batch, *matrix.shape)).tensor, columns.tensor]))
    y = y.reshape(batch, w.shape[0], *out)
    if bias is not None:
        y = y + bias.reshape(w.shape[0], *([1] * rank))
    return [m.result(y.tensor)]


SAMPLING: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "GridSample": _grid_sample,
    "DeformConv": _deform_conv,
}
"""Handlers of this file by operator."""
