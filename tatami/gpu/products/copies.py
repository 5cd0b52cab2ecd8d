"""Copies of an operand by threads, each of a few neighbours: how many, and which templates' rings they fill."""

from __future__ import annotations

from tatami.core.expr import Expr
from tatami.core.kernel import Condition, is_divisible
from tatami.core.target import ACCESS_BYTES
from tatami.gpu.ir import Operand

STORED_BYTES = 2
"""Largest copy, in bytes, that is a load and a store: cp.async moves 4, 8 or 16 bytes."""


def copy_width(o: Operand, size_mn: Expr, size_k: Expr, conditions: tuple[Condition, ...], wanted: int) -> int:
    """Elements per copy: the widest legal width (16, 8 or 4 bytes), or 1, which for 2 bytes is a plain load and store."""
    if o.gather is not None:
        return min(o.run, wanted)
    assert o.stride_k is not None and o.stride_mn is not None and o.offset is not None
    along, other = (size_k, o.stride_mn) if o.major == "k" else (size_mn, o.stride_k)
    for width in (16, 8, 4, 2):
        if (
            width * o.dtype.itemsize <= ACCESS_BYTES
            and width <= wanted
            and all(is_divisible(e, width, conditions) for e in (along, other, o.offset))
        ):
            return width
    return 1


def is_stored(o: Operand, width: int) -> bool:
    """True if copies of `width` elements are loads and stores, not cp.async."""
    return width * o.dtype.itemsize <= STORED_BYTES
