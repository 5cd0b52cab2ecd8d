"""Reduction of guards: those that always hold, or follow from the others, are removed (spec 3 §5.2).

Decided in closed form where that is exact: a guard that holds by the ranges of its axes is dropped, and guards over disjoint
axes cannot follow from each other. Only guards that share axes are passed to isl, each distinct set once.
"""

from __future__ import annotations

from tatami.core.algebra.bounds import is_within
from tatami.core.algebra.visit import free_vars
from tatami.core.expr import Expr
from tatami.indexbook.ir import Guard

Extents = dict[str, Expr]


class GuardCache:
    """Reduced guards of this run, so that equal sets are reduced once."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[Guard, ...]] = {}

    def needed(self, guards: tuple[Guard, ...], extents: Extents) -> tuple[Guard, ...]:
        """The guards that do not follow from the ranges of the axes and the other guards."""
        key = (guards, tuple(extents.items()))
        if key not in self._known:
            kept = tuple(g for g in dict.fromkeys(guards) if not is_within(g.index, g.size, extents))
            self._known[key] = kept if are_independent(kept, extents) else _reduced(kept, extents)
        return self._known[key]


def are_independent(guards: tuple[Guard, ...], extents: Extents) -> bool:
    """True if no two guards share an axis."""
    seen: set[str] = set()
    for g in guards:
        axes = free_vars(g.index) & extents.keys()
        if axes & seen:
            return False
        seen |= axes
    return True


def _reduced(guards: tuple[Guard, ...], extents: Extents) -> tuple[Guard, ...]:
    from tatami.poly_view.isl_cache import IslCache

    return IslCache().without_redundant(guards, extents)
