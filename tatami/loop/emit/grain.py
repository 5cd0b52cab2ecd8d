"""Minimum work per thread: a few times the cost of waking it."""

from __future__ import annotations

from tatami.core.expr import ONE, Expr, expr, floordiv, maximum

GRAIN_PACK = 1 << 14
"""Minimum number of elements copied per thread."""


def grain(wanted: int, item: Expr) -> Expr:
    """Number of items, each of `item` work, that make up the wanted amount; at least 1."""
    return maximum(ONE, floordiv(expr(wanted), maximum(item, ONE)))
