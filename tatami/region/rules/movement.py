"""Rules that turn movement into index maps of reads (C-CON1, spec 3 §6.3.1, §6.5)."""

from __future__ import annotations

import msgspec

from tatami.core.expr import ONE, ZERO, Expr, var
from tatami.region import ir
from tatami.region.rules.inlining import inline_lets, is_elementwise, straight
from tatami.region.walk import LetUse, all_axes, lets_by_name, nodes, rewrite

MAX_INDEX_NODES = 24
"""Maximum number of nodes of a coordinate that every reader computes again."""


def spell_out_positions(region: ir.Region) -> ir.Region:
    """BroadcastInDim and Transpose become reads at named axes.

    n7 [m, n, k] = broadcast_in_dim n7_t, dims [1, 2]   ->   n7 [m, n, k] = n7_t at (n, k)
    """
    lets = lets_by_name(region)
    extents = all_axes(region)
    out = []
    for let in region.lets:

        def change(e: ir.RegionExpr, let: ir.Let = let) -> ir.RegionExpr:
            match e:
                case ir.BroadcastInDim(operand=ir.Ref(let=source), broadcast_dimensions=dims):
                    return straight(
                        ir.At(source, _positions(lets[source], [let.axes[d] for d in dims], extents)), lets[source].axes
                    )
                case ir.Transpose(operand=ir.Ref(let=source), permutation=permutation):
                    names = [""] * len(permutation)
                    for j, p in enumerate(permutation):
                        names[p] = let.axes[j]
                    return straight(ir.At(source, _positions(lets[source], names, extents)), lets[source].axes)
                case ir.BroadcastInDim(operand=operand) | ir.Transpose(operand=operand):
                    return operand
                case ir.At(let=source):
                    return straight(e, lets[source].axes)
                case _:
                    return e

        out.append(msgspec.structs.replace(let, expr=rewrite(let.expr, change)))
    return msgspec.structs.replace(region, lets=tuple(out))


def _positions(source: ir.Let, names: list[str], extents: dict[str, Expr]) -> tuple[Expr, ...]:
    return tuple(ZERO if extents[a] == ONE else var(n) for a, n in zip(source.axes, names, strict=True))


def inline_movement(region: ir.Region) -> ir.Region:
    """Lets that only move, convert what they read, or compute with coordinates go into their readers; any elementwise
    let read through a map is computed at the read.

    n5 [m, n, k] = A[m, k];  acc = sum over k of n5 * n7    ->   acc = sum over k of A[m, k] * B[k, n]
    """
    moves: dict[str, bool] = {}

    def decide(let: ir.Let, use: LetUse) -> bool:
        if let.name not in moves:
            moves[let.name] = is_view(let.expr) or is_coordinate(let.expr)
        return moves[let.name] or (isinstance(use, ir.At) and is_elementwise(let.expr))

    return inline_lets(region, decide)


def is_view(e: ir.RegionExpr) -> bool:
    """True if `e` moves one value: a read, a reference or a constant under guards, casts and roundings of reads."""
    match e:
        case ir.Read() | ir.Const() | ir.Index() | ir.Ref() | ir.At():
            return True
        case ir.Select(pred=ir.Within(), then=then, other=other):
            return is_view(then) and is_view(other)
        case ir.Cast(x=x) | ir.Unary(fn="tf32", x=x):
            return is_view(x) and not any(isinstance(n, ir.Ref | ir.At) for n in nodes(x))
        case _:
            return False


def is_coordinate(e: ir.RegionExpr) -> bool:
    """True if `e` is a short computation with coordinates and constants alone."""
    allowed = (ir.Index, ir.Const, ir.Within, ir.Unary, ir.Binary, ir.Select, ir.Cast)
    inner = list(nodes(e))
    return len(inner) <= MAX_INDEX_NODES and all(isinstance(n, allowed) for n in inner)
