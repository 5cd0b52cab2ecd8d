"""Windows of images: unfold and fold, and the sizes of windows."""

from __future__ import annotations

import msgspec

from tatami.core.expr import Expr, Shape, expr, floordiv, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    Operands,
    Site,
    need,
    want,
    want_shape,
)


class Unfold(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `unfold`: windows over the last len(kernel) axes. groups > 1 splits the axis before them."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1


class Fold(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `fold`. `size`: the whole result shape, (C, L..) or (L..)."""

    size: Shape
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1


def windows(size: Expr, kernel: int, stride: int, dilation: int) -> Expr:
    """Number of windows of `kernel` elements, `dilation` apart, every `stride` elements."""
    return floordiv(size - ((kernel - 1) * dilation + 1), expr(stride)) + 1


def filled(values: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """One value per spatial axis; an empty tuple means all 1."""
    return values or (1,) * rank


def unfold(attrs: Unfold, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    """Type of windows over the last axes."""
    (x,) = need(operands)
    n = len(attrs.kernel)
    lead = len(x.shape) - n
    want(
        lead in (0, 1, 2), f"unfold of {shape_text(x.shape)} with {n} kernel sizes", "give (L..), (C, L..) or (N, C, L..)", site
    )
    want(attrs.groups == 1 or lead >= 1, "groups without a channel axis", "give an operand (C, L..)", site)
    stride, dilation = filled(attrs.stride, n), filled(attrs.dilation, n)
    check_windows(attrs.kernel, stride, dilation, site)
    out = tuple(windows(x.shape[lead + i], attrs.kernel[i], stride[i], dilation[i]) for i in range(n))
    channels = x.shape[:lead]
    if attrs.groups > 1:
        channels = (*channels[:-1], expr(attrs.groups), split_groups(channels[-1], attrs.groups, site))
    return (TensorType(x.dtype, (*channels, *map(expr, attrs.kernel), *out)),)


def check_windows(kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], site: Site) -> None:
    """Raise E1009 unless kernel, stride and dilation have one positive number per axis each."""
    complete = len(kernel) == len(stride) == len(dilation)
    want(complete, "a window attribute has the wrong length", f"give {len(kernel)} values, one per axis", site)
    want(min((*kernel, *stride, *dilation), default=1) > 0, "a window attribute is not positive", "give numbers >= 1", site)


def split_groups(channels: Expr, groups: int, site: Site) -> Expr:
    """Number of channels per group. Raises E1009 unless `groups` divides `channels`."""
    want(groups > 0, f"{groups} groups", "give 1 or more", site)
    per = floordiv(channels, expr(groups))
    want(per * groups == channels, f"{channels} channels in {groups} groups", "use a number of groups that divides", site)
    return per


def fold(attrs: Fold, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    """Type of windows added up where they overlap."""
    (x,) = need(operands)
    n = len(attrs.kernel)
    back = Unfold(attrs.kernel, attrs.stride, attrs.dilation, attrs.groups)
    (wanted,) = unfold(back, [TensorType(x.dtype, attrs.size)], site)
    why = f"fold to {shape_text(attrs.size)} needs an operand {shape_text(wanted.shape)}, not {shape_text(x.shape)}"
    want_shape(x.shape, wanted.shape, why, f"give the result of unfold over {n} axes", site)
    return (TensorType(x.dtype, attrs.size),)
