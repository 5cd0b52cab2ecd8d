"""How much work a thread should get at least: a few times what waking it costs."""

from __future__ import annotations

from tatami.core.expr import ONE, Expr, expr, floordiv, maximum

GRAIN_FLOPS = 1 << 18
GRAIN_PACK = 1 << 14
"""Elements that are copied."""


def grain(wanted: int, item: Expr) -> Expr:
    """Items of `item` work each that make up the wanted amount."""
    return maximum(ONE, floordiv(expr(wanted), maximum(item, ONE)))
