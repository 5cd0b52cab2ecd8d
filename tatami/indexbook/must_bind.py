"""Which size symbols a program has to be specialised on, so that all its accesses become affine (D2.6).

x[Cin*i1 + i2]        needs Cin
x[i0//N, i0 - N*(i0//N)]   needs N
"""

from __future__ import annotations

from tatami.core.expr import Expr, Floor, Var, free_vars
from tatami.indexbook.ir import IndexBook, IndexInfo


def symbols_to_bind(book: IndexBook) -> tuple[str, ...]:
    """Sorted names; empty when every access that can be affine is. Gathers and calls are left alone."""
    out: set[str] = set()
    for info in book.values.values():
        if info.flags and info.gathered is None and info.scattered is None:
            out |= _of_value(info)
    return tuple(sorted(out))


def _of_value(info: IndexInfo) -> set[str]:
    axes = frozenset(a.name for a in (*info.axes, *info.reduced))
    out: set[str] = set()
    for operand in info.operands:
        for piece in operand.pieces:
            for e in (*(piece.read.map if piece.read is not None else ()), *(g.index for g in piece.guards)):
                out |= _of_expression(e, axes)
    return out


def _of_expression(e: Expr, axes: frozenset[str]) -> set[str]:
    """Symbols that multiply an axis, or stand in a floor over one beside a constant denominator."""
    out: set[str] = set()
    for mono, _ in e.terms:
        touched = [a for a in mono if not free_vars(Expr((((a,), 1),))).isdisjoint(axes)]
        if not touched:
            continue
        for atom in mono:
            if isinstance(atom, Var):
                out |= {atom.name} - axes
            elif isinstance(atom, Floor):
                out |= free_vars(atom.den) - axes
                out |= _of_expression(atom.num, axes)
            else:
                out |= free_vars(Expr((((atom,), 1),))) - axes
    return out
