"""Pooling of regions of interest, whose edges are data: RoiAlign samples points, MaxRoiPool takes whole elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.data_sizes import read_size
from tatami.onnx.images.sampling import Tap, channels_last, taps, total, weighted
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice, data_dependent
from tatami.onnx.values import Value


@dataclass(frozen=True)
class _Points:
    """The sampling points of one axis: `bins` bins of at most `most` points in each region."""

    at: Num
    """[region, bins * most]: positions of the points, as floats."""
    unused: Num
    """Mask of points that read nothing: outside the image, or beyond the points of the region."""
    bins: int
    most: Expr
    counts: Num | None
    """[region]: points per bin, as floats; None if all regions have `most`."""


def _roi_align(m: Importer, n: OnnxNode) -> list[Value]:
    """RoiAlign: each region of interest [x1, y1, x2, y2] in height x width bins, sampled at ratio x ratio points per bin;
    without a ratio at ceil(extent / bins) points along each axis."""
    x, rois, batch = (Num(m, t) for t in m.operands(n))
    wide = DType.fp64 if x.dtype == DType.fp64 else DType.fp32
    (y, z) = (_points(m, n, x, rois, axis, wide) for axis in (1, 0))
    rows, columns = y.most * y.bins, z.most * z.bins
    count = rois.shape[0]
    full = (count, rows, columns)

    def spread(t: Num, axis: int) -> Num:
        return t.unsqueeze(axis).fn("expand", shape=full)

    unused = spread(y.unused, 2).fn("or", spread(z.unused, 1))
    image = batch.cast(DType.i64).unsqueeze(1, 2).fn("expand", shape=full)
    axes: list[list[Tap]] = [
        [(image, None)],
        taps(spread(y.at, 2), "linear", lambda i: i),
        taps(spread(z.at, 1), "linear", lambda i: i),
    ]
    terms = weighted(channels_last(x.cast(wide)), axes, 0, "clamp")  # taps beyond the last point have weight 0
    zero = Num(m, m.number(0, wide))
    channels = x.shape[1]
    split = (count, expr(y.bins), y.most, expr(z.bins), z.most, channels)
    if choice(m, n, "mode", "avg", ("avg", "max")) == "max":  # the largest weighted tap, as in the operator's reference
        best = terms[0]
        for term in terms[1:]:
            best = best.fn("max", term)
        adaptive = y.counts is not None
        low = Num(m, m.number(-np.inf, wide)) if adaptive else zero
        pooled = unused.unsqueeze(3).where(low, best).reshape(*split).fn("reduce_max", axes=(2, 4))
        if adaptive:  # a bin may have no points
            pooled = pooled.fn("eq", -np.inf).where(zero, pooled)
    else:
        sums = unused.unsqueeze(3).where(zero, total(terms)).reshape(*split)
        if y.counts is None or z.counts is None:
            pooled = sums.fn("reduce_mean", axes=(2, 4))
        else:
            points = (y.counts * z.counts).fn("max", 1.0).unsqueeze(1, 2, 3)
            pooled = sums.fn("reduce_sum", axes=(2, 4)) / points
    return [m.result(pooled.permute(0, 3, 1, 2).cast(x.dtype).tensor)]


def _points(m: Importer, n: OnnxNode, x: Num, rois: Num, axis: int, wide: DType) -> _Points:
    """The points along one axis: 0 for x, 1 for y, as in a region's corners."""
    corners = "output_half_pixel" if m.opset < 16 else "half_pixel"
    half_pixel = choice(m, n, "coordinate_transformation_mode", corners, ("half_pixel", "output_half_pixel")) == "half_pixel"
    scale, ratio = float(n.attr("spatial_scale", 1.0)), n.attr("sampling_ratio", 0)
    bins = n.attr("output_height" if axis else "output_width", 1)
    size = size_of(m, x.shape[3 - axis], wide)
    edges = rois.cast(wide) * scale - (0.5 if half_pixel else 0.0)
    start = edges.at(1, axis)
    extent = edges.at(1, axis + 2) - start
    if not half_pixel:
        extent = extent.fn("max", 1.0)
    step = (extent / float(bins)).unsqueeze(1)
    counts = None if ratio > 0 else step.fn("squeeze", axes=(1,)).fn("ceil").fn("max", 0.0)
    most = expr(ratio) if counts is None else _most(m, n, axis, bins, scale, counts)
    place = Num(m, m.one("iota", [], {"shape": (most * bins,), "axis": 0}))
    if counts is None:
        at = step * ((place.cast(wide) + 0.5) / float(ratio)).unsqueeze(0) + start.unsqueeze(1)
    else:
        each = size_of(m, most, DType.i64)
        within = place.fn("rem", each).cast(wide).unsqueeze(0)
        part = (within + 0.5) / counts.fn("max", 1.0).unsqueeze(1)
        at = step * (part + place.fn("idiv", each).cast(wide).unsqueeze(0)) + start.unsqueeze(1)
    unused = at.fn("lt", -1.0).fn("or", at.fn("gt", size))
    if counts is not None:
        unused = unused.fn("or", within.fn("ge", counts.unsqueeze(1)))
    return _Points(at.fn("max", 0.0).fn("min", size - 1.0), unused, bins, most, counts)


def _most(m: Importer, n: OnnxNode, axis: int, bins: int, scale: float, counts: Num) -> Expr:
    """The largest number of points per bin of any region: a number for known regions, else read from the data."""
    known = m.known(m.value(n.inputs[1]))
    if known is not None:
        extents = (known[:, axis + 2] - known[:, axis]).astype(np.float64) * scale
        return expr(int(np.ceil(max(1.0, float(extents.max(initial=0.0))) / bins)) + 1)
    if not m.reads_sizes or m.name:
        raise data_dependent(m, n, "the number of points that a region is sampled at", 1)
    return read_size(m, counts.fn("reduce_max").fn("max", 0.0).cast(DType.i64))


def _max_roi_pool(m: Importer, n: OnnxNode) -> list[Value]:
    """MaxRoiPool: the largest element of each bin of each region [image, x1, y1, x2, y2], whose corners are rounded and
    included; a bin without elements gives 0."""
    x, rois = (Num(m, t) for t in m.operands(n))
    wide = DType.fp64 if x.dtype == DType.fp64 else DType.fp32
    lowest = Num(m, m.number(-np.inf, x.dtype))
    pooled = Num(m, m.one("take", [x.tensor, rois.at(1, 0).cast(DType.i64).tensor], {"axis": 0}))
    some: list[Num] = []
    for axis, bins in zip((2, 3), n.attr("pooled_shape"), strict=True):
        size = size_of(m, x.shape[axis], wide)
        first, last = (_rounded(rois.at(1, c).cast(wide) * float(n.attr("spatial_scale", 1.0))) for c in (4 - axis, 6 - axis))
        step = (last - first + 1.0).fn("max", 1.0) / float(bins)
        place = Num(m, m.one("iota", [], {"shape": (x.shape[axis],), "axis": 0})).cast(wide).unsqueeze(0)
        parts, full = [], []
        for b in range(bins):
            low = ((step * float(b)).fn("floor") + first).fn("max", 0.0).fn("min", size)
            high = ((step * float(b + 1)).fn("ceil") + first).fn("max", 0.0).fn("min", size)
            inside = place.fn("ge", low.unsqueeze(1)).fn("and", place.fn("lt", high.unsqueeze(1)))
            inside = inside.unsqueeze(1, 5 - axis)
            parts.append(inside.where(pooled, lowest).fn("reduce_max", axes=(axis,)).tensor)
            full.append(high.fn("gt", low).tensor)
        pooled = Num(m, m.one("stack", parts, {"axis": axis}))
        some.append(Num(m, m.one("stack", full, {"axis": 1})))
    rows, columns = some
    filled = rows.unsqueeze(1, 3).fn("and", columns.unsqueeze(1, 2))
    return [m.result(filled.where(pooled, 0.0).tensor)]


def _rounded(x: Num) -> Num:
    """`x` rounded to the nearest integer, halves away from zero."""
    return (x.fn("abs") + 0.5).fn("floor") * x.fn("sign")


ROI: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"RoiAlign": _roi_align, "MaxRoiPool": _max_roi_pool}
"""Handlers of this file by operator."""
