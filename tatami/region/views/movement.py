"""Recognition of Regions that only move elements: copies that happen to be kernels, which bandwidth describes best.

y[i0, i1] = x[i1, i0]                              moves
y[i0] = i0 < 2 ? 0 : x[idx[i0 - 2] + 1]            moves: where it reads is computed, what it writes is not
y[i0] = x[i0] + 0.0                                computes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from tatami.region import ir
from tatami.region.walk import children, lets_by_name


def only_moves(region: ir.Region) -> bool:
    """True if every element written is an element of an input or a constant, chosen by position alone. A Region that reads
    nothing (a fill, an iota) makes its numbers, so it moves none."""
    if region.opaque is not None or any(y.combine != "set" or y.cast is not None for y in region.yields):
        return False
    lets = lets_by_name(region)
    return bool(region.inputs) and all(_moves(lets[y.source].expr, lets) for y in region.yields)


def _moves(e: ir.RegionExpr, lets: Mapping[str, ir.Let]) -> bool:
    """True if the value is an element of some tensor, or a constant."""
    match e:
        case ir.Read() | ir.ReadAt() | ir.Const():
            return True
        case ir.Ref(let=let) | ir.At(let=let):
            return _moves(lets[let].expr, lets)
        case ir.BroadcastInDim(operand=operand) | ir.Transpose(operand=operand):
            return _moves(operand, lets)
        case ir.Select(pred=pred, then=then, other=other):
            return _is_positional(pred, lets) and _moves(then, lets) and _moves(other, lets)
        case ir.Index() | ir.Within() | ir.Unary() | ir.Binary() | ir.Cast() | ir.Reduce() | ir.Scan() | ir.Random():
            return False
        case _:
            assert_never(e)


def _is_positional(e: ir.RegionExpr, lets: Mapping[str, ir.Let]) -> bool:
    """True if `e` depends on coordinates and sizes alone."""
    match e:
        case ir.Read() | ir.ReadAt() | ir.Random():
            return False
        case ir.Ref(let=let) | ir.At(let=let):
            return _is_positional(lets[let].expr, lets)
        case _:
            return all(_is_positional(c, lets) for c in children(e))
