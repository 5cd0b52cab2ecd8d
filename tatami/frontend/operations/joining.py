"""Operands joined along an axis, and one taken apart."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.size_forms import tidy_size
from tatami.core.expr import Shape, expr, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    Operands,
    Site,
    axis_of,
    need,
    same_dtype,
    same_size,
    want,
)


class OneAxis(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `concat` and `stack`: the axis along which operands are joined."""

    axis: int = 0


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `split`: the sizes of the parts along one axis."""

    axis: int
    sizes: Shape


def concat(attrs: OneAxis, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    """Type of operands end to end along an axis."""
    types = need(operands)
    rank = len(types[0].shape)
    a = axis_of(attrs.axis, rank, site)
    for t in types[1:]:
        want(
            len(t.shape) == rank,
            f"concat of {shape_text(types[0].shape)} and {shape_text(t.shape)}",
            "give one rank",
            site,
            "BroadcastMismatch",
        )
        for j in range(rank):
            if j != a:
                same_size(types[0].shape[j], t.shape[j], f"concat, axis {j}", site)
    total = tidy_size(sum((t.shape[a] for t in types[1:]), types[0].shape[a]))
    return (TensorType(same_dtype(types, site), (*types[0].shape[:a], total, *types[0].shape[a + 1 :])),)


def stack(attrs: OneAxis, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    """Type of operands along a new axis."""
    types = need(operands)
    a = axis_of(attrs.axis, len(types[0].shape) + 1, site)
    for t in types[1:]:
        want(
            len(t.shape) == len(types[0].shape),
            f"stack of {shape_text(types[0].shape)} and {shape_text(t.shape)}",
            "give one shape",
            site,
            "BroadcastMismatch",
        )
        for x, y in zip(types[0].shape, t.shape, strict=True):
            same_size(x, y, "stack", site)
    return (TensorType(same_dtype(types, site), (*types[0].shape[:a], expr(len(types)), *types[0].shape[a:])),)


def split(attrs: Split, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    """Types of the parts of an axis."""
    (x,) = need(operands)
    a = axis_of(attrs.axis, len(x.shape), site)
    same_size(x.shape[a], sum(attrs.sizes[1:], attrs.sizes[0]), "split sizes", site)
    return tuple(TensorType(x.dtype, (*x.shape[:a], s, *x.shape[a + 1 :])) for s in attrs.sizes)
