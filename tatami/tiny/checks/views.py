"""Checks of a VIEW: its map is affine in the result's axes and reads inside the operand (decision 0014).

    VIEW index_map [i0 + 3] of x[N], result [2]      for N = 4 it reads x[4], outside

Such a map needs the equation ``max(3 + 1, N - 1) == N - 1`` in the signature's assumptions, so that a call with a smaller N is
refused (E1804). A read that no equation can express is a GATHER, which checks each element.
"""

from __future__ import annotations

import re

from tatami.core.algebra.assumed import Assumed
from tatami.core.algebra.bounds import affine_ends, is_within
from tatami.core.algebra.order import greatest, least
from tatami.core.algebra.substitute import substitute_sizes
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic
from tatami.core.expr import ONE, ZERO, Expr, Floor, Shape, Var
from tatami.core.signature import Signature, bound_values
from tatami.tiny.ir import ViewOp


def verify_view(at: str, op: ViewOp, read: Shape, signature: Signature) -> list[Diagnostic]:
    """The first fault of the map, as a list; empty if there is none. `read`: the operand's shape."""
    try:
        bound, read = substitute_sizes((op, read), bound_values(signature))
    except TatamiError as error:
        return list(error.diagnostics)
    extents = {f"i{k}": size for k, size in enumerate(bound.result_shape)}
    recorded = {(e.lhs, e.rhs) for e in signature.assumptions}
    assumed = Assumed(signature.assumptions)
    for dim, (e, place, size) in enumerate(zip(op.index_map, bound.index_map, read, strict=True)):
        unknown = sorted(n for n in free_vars(e) if is_axis_name(n) and n not in extents)
        if unknown:
            found = f"index_map[{dim}] names {unknown[0]}, the result has rank {len(extents)}"
            return [diagnostic("AxisOutOfRange", at, found, f"use i0 … i{len(extents) - 1}")]
        if not is_affine(e, set(extents)):
            found = f"index_map[{dim}] = {e} is not affine with floordiv in the result's axes"
            wanted = "use sums of axes times sizes and floordiv by a size; for anything else use GATHER with an index tensor"
            return [diagnostic("NonAffineView", at, found, wanted)]
        if is_within(place, size, extents) or is_within(
            assumed.rewrite(place), assumed.rewrite(size), assumed.extents(extents)
        ):
            continue
        ends = affine_ends(place, extents)
        missing = [q for q in reads_inside(ends, size, bound.result_shape) if q not in recorded] if ends else None
        if missing != []:
            found = f"index_map[{dim}] = {e} is not proved to be inside an axis of size {size}"
            wanted = "use GATHER with an index tensor, which checks each element"
            if missing:
                equations = ", ".join(f'{{"lhs": "{lhs}", "rhs": "{rhs}", "is_read": true}}' for lhs, rhs in missing)
                wanted = f"add {equations} to the signature's assumptions, or {wanted}"
            return [diagnostic("IndexOutOfRange", at, found, wanted)]
    return []


def reads_inside(ends: tuple[Expr, Expr], size: Expr, shape: Shape) -> list[tuple[Expr, Expr]]:
    """The two sides of each equation for ``0 <= low`` and ``high < size``, trivially true if the result has no elements."""
    is_read = least(ONE, *shape)
    pairs = (
        (greatest(ZERO, ends[0]) * is_read, ends[0] * is_read),
        (greatest(ends[1], size - 1) * is_read, (size - 1) * is_read),
    )
    return [(lhs, rhs) for lhs, rhs in pairs if lhs != rhs]


def is_axis_name(name: str) -> bool:
    """True if `name` is an axis of an index map: i0, i1, …"""
    return re.fullmatch(r"i\d+", name) is not None


def is_affine(e: Expr, axes: set[str]) -> bool:
    """True if `e` has no product of two axis terms, no division by an axis, and no axis in a min or max."""
    for mono, _ in e.terms:
        holders = 0
        for atom in mono:
            if isinstance(atom, Var):
                holders += atom.name in axes
            elif isinstance(atom, Floor):
                if not free_vars(atom.den).isdisjoint(axes) or not is_affine(atom.num, axes):
                    return False
                holders += not free_vars(atom.num).isdisjoint(axes)
            elif any(not free_vars(a).isdisjoint(axes) for a in atom.args):
                return False
        if holders > 1:
            return False
    return True
