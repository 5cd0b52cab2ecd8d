"""Sampling of volumes at the positions of a grid; for images PyTorch has a decomposition of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, product
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal

LINEAR, NEAREST = 0, 1
"""ATen's numbers of the interpolations."""
ZEROS, BORDER, REFLECTION = 0, 1, 2
"""ATen's numbers of the paddings."""


def grid_sampler_3d(m: Importer, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """grid_sampler_3d: [N, C, D, H, W] sampled at [N, d, h, w, 3], whose last axis holds positions along W, H and D, from
    -1 to 1."""
    if mode not in (LINEAR, NEAREST):
        raise Refusal("an interpolation of volumes other than linear and nearest")
    if ZERO in (*x.shape, *m.shape):
        return m.graph.full(m.shape, 0, x.dtype)
    wide = DType.fp32 if x.dtype.is_narrow_float else x.dtype
    to = grid.shape[1:4]
    flat = product(to)
    count, channels = x.shape[0], x.shape[1]
    places = grid.cast(wide).reshape(count, flat, 3)
    at = [
        _place(m, places[:, :, 2 - axis], x, axis, padding, align_corners)  # the grid names the fastest axis first
        for axis in range(3)
    ]
    plane = x.cast(wide).reshape(count, channels, product(x.shape[2:]))
    if mode == NEAREST:
        out = _read(m, plane, [p.round() for p in at], x)
    else:
        low = [p.floor() for p in at]
        parts = []
        for corner in combinations((0.0, 1.0), repeat=3):
            weight = m.graph.full(at[0].shape, 1, wide)
            for p, lo, side in zip(at, low, corner, strict=True):
                weight = weight * (p - lo if side else 1.0 - (p - lo))
            value = _read(m, plane, [lo + side for lo, side in zip(low, corner, strict=True)], x)
            parts.append(value * weight.unsqueeze(1).expand(value.shape))
        out = parts[0]
        for part in parts[1:]:
            out = out + part
    return out.reshape(m.shape).cast(x.dtype)


def _place(m: Importer, at: Tensor, x: Tensor, axis: int, padding: int, align_corners: bool) -> Tensor:
    """Positions -1 … 1 as positions along an axis of the volume, moved inside by the padding."""
    size = m.graph.size_of(x.shape[2 + axis]).cast(at.dtype)
    at = (at + 1.0) * ((size - 1.0) * 0.5) if align_corners else ((at + 1.0) * size - 1.0) * 0.5
    if padding == ZEROS:
        return at
    if padding == REFLECTION:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, size)
        at = _reflected(m, at, low, span)
    return at.maximum(0.0).minimum(size - 1.0)


def _reflected(m: Importer, at: Tensor, low: float, span: Tensor) -> Tensor:
    """Positions mirrored at both ends of a line that begins at `low` until they are inside."""
    off = (at - low).abs()
    width = m.graph.where(span > 0.0, span, 1.0)
    turns = (off / width).floor()
    extra = off - turns * width
    is_odd = (turns - (turns * 0.5).floor() * 2.0).one("ne", 0.0)
    return m.graph.where(span > 0.0, m.graph.where(is_odd, width - extra, extra) + low, 0.0)


def _read(m: Importer, plane: Tensor, at: Sequence[Tensor], x: Tensor) -> Tensor:
    """[N, C, positions] of [N, C, D*H*W]; 0 outside the volume."""
    inside, index = None, None
    for axis, place in enumerate(at):
        size = m.graph.size_of(x.shape[2 + axis])
        within = (place >= 0.0).one("and", place < size.cast(place.dtype))
        inside = within if inside is None else inside.one("and", within)
        whole = m.graph.where(within, place, 0.0).cast(DType.i64)
        index = whole if index is None else index * size + whole
    assert inside is not None and index is not None
    shape = (plane.shape[0], plane.shape[1], index.shape[1])
    value = plane.gather(2, index.unsqueeze(1).expand(shape), "clamp")
    return m.graph.where(inside.unsqueeze(1).expand(shape), value, 0.0)


GRID: dict[str, Handler] = {"aten.grid_sampler_3d.default": grid_sampler_3d}
"""Handlers of this file by overload."""
