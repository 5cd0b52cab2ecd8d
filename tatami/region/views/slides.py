"""Sliding reads: their position moves with an axis of the result and with an axis that is summed over (windows).

x[c, s*h + d*i - 1, s*w + d*j - 1]     entry 1 slides with h over i, entry 2 with w over j
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.expr import ZERO, Expr
from tatami.indexbook.ir import Guard
from tatami.region.ir import Cast, Const, Read, RegionExpr, Select, Within


class Slide(msgspec.Struct, frozen=True):
    """One sliding dimension: entry `dim` of the read is ``stride * axis + dilation * window + offset``. `guard`: extent inside
    which it is read, or None without a guard."""

    axis: str
    window: str
    dim: int
    stride: int
    dilation: int
    offset: Expr
    guard: Expr | None


class Refused(Exception):
    """The reason why a Region does not have the shape that was looked for."""


def plain_read(e: RegionExpr) -> Read | None:
    """The read in `e`, seen through casts; else None."""
    while isinstance(e, Cast) and not e.bits:
        e = e.x
    return e if isinstance(e, Read) else None


def guarded_read(e: RegionExpr) -> tuple[tuple[Guard, ...], Read] | None:
    """(guards, read) of a plain read, seen through casts, with a constant where a guard fails; None for any other
    expression."""
    match e:
        case Cast(x=x, bits=False):
            return guarded_read(x)
        case Select(pred=Within(guards=guards), then=then, other=Const()):
            read = plain_read(then)
            return None if read is None else (guards, read)
        case Read():
            return (), e
        case _:
            return None


def find_slides(
    read: Read, guards: tuple[Guard, ...], axes: tuple[str, ...], window: tuple[str, ...], extents: Mapping[str, Expr]
) -> tuple[Slide, ...]:
    """Every entry of the read that moves with one of `axes` and one of `window`, in the order of `axes`."""
    out: list[Slide] = []
    left = list(guards)
    for dim, entry in enumerate(read.map):
        used = free_vars(entry)
        own, win = [a for a in axes if a in used], [a for a in window if a in used]
        guard = next((g for g in left if g.index == entry), None)
        if not win or not own:
            continue
        if len(own) != 1 or len(win) != 1:
            raise Refused(f"entry {dim} of the read moves with {', '.join([*own, *win])}")
        stride, dilation = _step(entry, own[0]), _step(entry, win[0])
        if stride is None or dilation is None or stride < 1 or dilation < 1:
            raise Refused(f"entry {dim} of the read moves backwards or unevenly")
        if guard is not None:
            left.remove(guard)
        offset = substitute(entry, {own[0]: ZERO, win[0]: ZERO})
        if free_vars(offset) & set(extents):
            raise Refused(f"entry {dim} of the read depends on another axis")
        out.append(Slide(own[0], win[0], dim, stride, dilation, offset, None if guard is None else guard.size))
    if left:
        raise Refused("a guard is about something else than the window's place")
    if len({s.axis for s in out}) != len(out) or len({s.window for s in out}) != len(out):
        raise Refused(f"{len(out)} dimensions slide along fewer axes")
    out.sort(key=lambda s: axes.index(s.axis))
    others = [x for d, x in enumerate(read.map) if d not in {s.dim for s in out}]
    if any(free_vars(x) & {n for s in out for n in (s.axis, s.window)} for x in others):
        raise Refused("the read moves with a sliding axis in another entry too")
    return tuple(out)


def _step(e: Expr, name: str) -> int | None:
    change = step_of(e, name)
    return None if change is None else change.as_int()
