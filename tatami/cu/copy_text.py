"""The copies of one operand's block by all threads of a CTA: cp.async of 16, 8 or 4 bytes, zeros outside.

A matrix is copied row by row of the tile, `width` elements at a time. A gathered operand (a window of an image with its
padding, or any view that is no matrix) is copied element by element: each has an address and guards of its own, and
neighbouring threads copy neighbouring columns of the tile.
"""

from __future__ import annotations

from typing import NamedTuple

from tatami.core.expr import Expr, substitute, var
from tatami.cu.expr_text import STORED_TYPE, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.cu.mma_text import offset_text
from tatami.gpu.ir import CpAsync, Kernel, Operand, Ring

LIMIT = {"k": "K", "m": "M", "n": "N", "d": "D"}


class Side(NamedTuple):
    """An axis of an operand's block: its extent in the tile, and the text of its first coordinate."""

    axis: str
    extent: int
    start: str


def copy_text(k: Kernel, s: CpAsync, o: Operand, mn: Side, inner: Side, ring: Ring, l: Lines) -> None:
    """Prints one loop over the copies of a thread; `slot` is in scope. `inner` is the axis that the product sums over."""
    size = o.dtype.itemsize
    (row_axis, rows, first_row), (column_axis, columns, first_column) = (mn, inner) if o.major == "k" else (inner, mn)
    per_row, whole = columns // s.width, 16 // size
    count = rows * per_row
    each = -(-count // k.threads)
    if o.gather is None:
        assert o.offset is not None
        l.add(f"const {STORED_TYPE[o.dtype]}* const from = {o.param} + {index_text(o.offset)};")
    # Addresses and guards are kept from block to block in registers of their own: few at a time where copies are many.
    few = o.gather is not None or s.width < whole or (k.weights is not None and each > 4)
    unroll = "TT_UNROLL_BY(2)" if few else "TT_UNROLL"
    with l.block(f"{unroll} for (int i = 0; i < {each}; ++i)"):
        l.add("const int c = tid + i * THREADS;")
        if count % k.threads:
            l.add(f"if (c >= {count}) break;")
        l.add(f"const int row = c / {per_row}, column = c % {per_row} * {s.width};")
        at = {row_axis: "g_row", column_axis: "g_column"}
        l.add(f"const tt_i64 g_row = {first_row} + row, g_column = {first_column} + column;")
        tests = [f"{at[axis]} < {LIMIT[axis]}" for axis in (row_axis, column_axis) if axis in s.predicate]
        if k.groups is not None and o.ring == k.b.ring:
            tests.append(f"matrix < {factor_text(k.groups.matrices)}")
        if o.gather is None:
            pitch = o.stride_mn if o.major == "k" else o.stride_k
            assert pitch is not None
            source, element = "from", f"g_row * {factor_text(pitch)} + g_column"
        else:

            def own(e: Expr) -> Expr:
                return substitute(e, {axis: var(name) for axis, name in at.items()})

            for number, g in enumerate(o.guards):
                l.add(f"const tt_i64 at{number} = {index_text(own(g.index))};")
                tests.append(f"(tt_u64)at{number} < (tt_u64)({index_text(own(g.size))})")
            source, element = o.param, index_text(own(o.gather))
        inside = "" if s.width == whole else f" + column % {whole} * {size}"
        dst = f"slot + {offset_text(ring)}(row, column / {whole}){inside}"
        copy = f"tt_cp_async_{s.width * size}" if s.width * size > 2 else "tt_copy_2"
        if tests:
            l.add(f"const bool inside = {' && '.join(tests)};")
            l.add(f"{copy}({dst}, {source} + (inside ? {element} : 0), inside ? {s.width * size} : 0);")
        else:
            l.add(f"{copy}({dst}, {source} + {element}, {s.width * size});")
