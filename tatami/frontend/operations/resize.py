"""Interpolation of images: the attributes of resize, its scales and its type."""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.expr import Shape, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    Operands,
    Site,
    need,
    want,
)


class Resize(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `resize`: interpolate the axes of `scales` (result size / operand size per axis) to `shape`; an axis of
    scale 1 that keeps its size is unchanged.

    `coordinates` maps a result position to an operand position as in ONNX Resize. The size in the formulas of align_corners
    and half_pixel_symmetric is scale * operand size if scales are given, not rounded to a whole number."""

    shape: Shape
    scales: tuple[float, ...] = ()
    """Scale per axis; empty: result size / operand size, which symbols decide when they are bound."""
    mode: Literal["nearest", "linear", "cubic"] = "nearest"
    coordinates: Literal[
        "half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn"
    ] = "half_pixel"
    nearest: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] = "round_prefer_floor"
    cubic_a: float = -0.75


def resize_scales(attrs: Resize, x: Shape, site: Site) -> tuple[float | None, ...]:
    """Result size / operand size per axis; None where sizes decide it when they are bound. Raises E1009 for an axis of size 0
    whose result has elements."""
    if attrs.scales:
        return attrs.scales
    out: list[float | None] = []
    for axis, (to, size) in enumerate(zip(attrs.shape, x, strict=True)):
        a, b = to.as_int(), size.as_int()
        want(to == size or b != 0 or a == 0, f"resize of axis {axis} from {size} to {to}", "give the axis elements", site)
        out.append(1.0 if to == size else None if a is None or b is None else a / b)
    return tuple(out)


def resize(attrs: Resize, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    """Type of an image interpolated to the sizes or by the scales of `attrs`."""
    (x,) = need(operands)
    fits = len(attrs.shape) == len(x.shape) and len(attrs.scales) in (0, len(x.shape))
    want(fits, f"resize of {shape_text(x.shape)} to {shape_text(attrs.shape)}", "give one size and scale per axis", site)
    scales = resize_scales(attrs, x.shape, site)
    empty = [i for i, to in enumerate(attrs.shape) if to == 0]
    want(
        all(s is None or s > 0 or i in empty for i, s in enumerate(scales)),
        "a scale that is not positive",
        "give scales > 0",
        site,
    )
    return (TensorType(x.dtype, attrs.shape),)
