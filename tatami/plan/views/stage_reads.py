"""Operands of a sum turned around once, so that lanes run along a let's axis instead of the summed one.

    s[m, n] = sum_d q[m, d] * k[n, d]     ->     t[d, n] = k[n, d];  s[m, n] = sum_d q[m, d] * t[d, n]

Without it every element of s needs a horizontal sum; with it one vector of k serves a group of rows. Done where the
operand is used again by another axis (m) that is long enough to pay for the copy.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tatami.core.algebra.lane_step import lane_step
from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE, ZERO, Expr, var
from tatami.core.layout import address
from tatami.plan.views.flatten import FlatLet
from tatami.region.ir import At, Binary, Read, Reduce, Region, RegionExpr, Select
from tatami.region.walk import Types, children

_REUSE = 8
"""Uses of an element that pay for copying it."""


def readers_to_turn(region: Region, lets: tuple[FlatLet, ...], lanes: int) -> tuple[str, ...]:
    """The sums an operand of which is worth turning around, for vectors of `lanes` elements."""
    sizes = {it.name: it.size for it in (*region.iters, *region.reduce_axes)}
    return () if lanes == 1 else tuple(let.name for let in lets if _operand(region, let, sizes, lanes) is not None)


def stage_reads(
    region: Region, lets: tuple[FlatLet, ...], typer: Types, turned: Collection[str], lanes: int
) -> tuple[tuple[FlatLet, ...], frozenset[str]]:
    """The lets with one more before each of `turned`, and the names of those; a sum without such an operand stays as it is."""
    sizes = {it.name: it.size for it in (*region.iters, *region.reduce_axes)}
    out: list[FlatLet] = []
    made: list[str] = []
    for let in lets:
        found = _operand(region, let, sizes, lanes) if let.name in turned else None
        if found is None:
            out.append(let)
            continue
        read, axes = found
        name = f"{let.name}.t"
        made.append(name)
        typer.lets[name] = typer.dtype(read)
        out.append(FlatLet(name, axes, typer.lets[name], "map", read))
        assert isinstance(let.expr, Reduce)
        body = _replace(let.expr.body, read, At(name, tuple(var(a) for a in axes)))
        out.append(msgspec.structs.replace(let, expr=msgspec.structs.replace(let.expr, body=body)))
    return tuple(out), frozenset(made)


def _operand(region: Region, let: FlatLet, sizes: dict[str, Expr], lanes: int) -> tuple[Read, tuple[str, ...]] | None:
    """The operand to transpose, and the axes of its copy; None if no operand of the sum is worth a copy."""
    e = let.expr
    if not isinstance(e, Reduce) or e.fn != "sum" or len(let.axes) < 2:
        return None
    reads = _reads(e.body)
    if reads is None or len(reads) != 2:
        return None
    memrefs = {p.name: p.memref for p in region.inputs}
    at = [address(memrefs[r.tensor].layout, memrefs[r.tensor].shape, r.map) for r in reads]
    for i, read in enumerate(reads):
        if not any(lane_step(at[i], r) == ONE for r in e.axes):
            continue
        used = free_vars(at[i])
        along = [a for a in let.axes if a in used and lane_step(at[1 - i], a) == ZERO and _is_long(sizes[a], lanes)]
        again = [a for a in let.axes if a not in used and _is_long(sizes[a], _REUSE)]
        if along and again and let.axes[-1] == along[-1]:
            lane = along[-1]
            axes = (*(a for a in let.axes if a in used and a != lane), *(r for r in e.axes if r in used), lane)
            return read, axes
    return None


def _is_long(size: Expr, least: int) -> bool:
    n = size.as_int()
    return n is None or n >= least


def _reads(body: RegionExpr) -> list[Read] | None:
    """All reads of a body of plain arithmetic over reads, else None."""
    out: list[Read] = []
    stack = [body]
    while stack:
        e = stack.pop()
        match e:
            case Read():
                out.append(e)
            case Binary():
                stack.extend((e.y, e.x))
            case Select() | At():
                return None
            case _:
                stack.extend(children(e))
    return out


def _replace(e: RegionExpr, old: Read, new: At) -> RegionExpr:
    if e == old:
        return new
    if isinstance(e, Binary):
        return Binary(e.fn, _replace(e.x, old, new), _replace(e.y, old, new))
    if hasattr(e, "x"):
        return msgspec.structs.replace(e, x=_replace(e.x, old, new))
    return e
