"""The copies of one operand's block by all threads of a CTA: cp.async of 16, 8 or 4 bytes, zeros outside.

A matrix is copied row by row of the tile, `width` elements at a time. A gathered operand (a window of an image with its
padding, or any view that is not a matrix) is copied element by element: each has an address and guards of its own, and
neighbouring threads copy neighbouring columns of the tile.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

from tatami.core.algebra.bounds import bounds
from tatami.core.algebra.visit import substitute
from tatami.core.expr import Expr, var
from tatami.cu.expr_text import STORED_TYPE, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.cu.products.mma import offset_text
from tatami.gpu.ir import Kernel, Operand, Ring
from tatami.gpu.statement_ir import CpAsync

LIMIT = {"k": "K", "m": "M", "n": "N", "d": "D"}
"""Axis of a tile -> C name of its size."""


class Side(NamedTuple):
    """An axis of an operand's block: its extent in the tile, and the text of its first coordinate."""

    axis: str
    extent: int
    start: str


TOGETHER = {"plain": 8, "narrow": 8, "wide": 4}
"""Copies that a producer's thread issues together: as many rows of a gathered operand as its registers hold addresses for, in
32 bits or in 64."""


def copy_text(k: Kernel, s: CpAsync, o: Operand, mn: Side, inner: Side, ring: Ring, l: Lines) -> None:
    """Print one loop over the copies of a thread; `slot` is in scope. `inner` is the axis that the product sums over."""
    if k.has_roles:
        _by_producer(k, s, o, mn, inner, ring, l)
        return
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
        tests, source, element = _source(s, o, at, l)
        if k.groups is not None and o.ring == k.b.ring:
            tests.append(f"matrix < {factor_text(k.groups.matrices)}")
        inside = "" if s.width == whole else f" + column % {whole} * {size}"
        dst = f"slot + {offset_text(ring)}(row, column / {whole}){inside}"
        copy = f"tt_cp_async_{s.width * size}" if s.width * size > 2 else "tt_copy_2"
        if tests:
            l.add(f"const bool inside = {' && '.join(tests)};")
            l.add(f"{copy}({dst}, {source} + (inside ? {element} : 0), inside ? {s.width * size} : 0);")
        else:
            l.add(f"{copy}({dst}, {source} + {element}, {s.width * size});")


def _source(s: CpAsync, o: Operand, at: dict[str, str], l: Lines, narrow: bool = False) -> tuple[list[str], str, str]:
    """(tests of one copy, the pointer, the element from there); `at`: C names of the axes. `narrow`: in 32 bits."""
    tests = [f"{name} < {LIMIT[axis]}" for axis, name in at.items() if axis in s.predicate]
    if o.gather is None:
        pitch = o.stride_mn if o.major == "k" else o.stride_k
        assert pitch is not None
        return tests, "from", f"g_row * {factor_text(pitch)} + g_column"

    def own(e: Expr) -> Expr:
        return substitute(e, {axis: var(name) for axis, name in at.items()})

    for number, g in enumerate(o.guards):
        l.add(f"const {'int' if narrow else 'tt_i64'} at{number} = {index_text(own(g.index))};")
        unsigned = "tt_u32" if narrow else "tt_u64"
        tests.append(f"({unsigned})at{number} < ({unsigned})({index_text(own(g.size))})")
    return tests, o.param, index_text(own(o.gather))


BEYOND = 512
"""Bound on the rows that a tile has beyond the last row of the result."""


def _is_narrow(k: Kernel, o: Operand) -> bool:
    """True if the positions of a gathered operand, and its address, are below 2^30, so that 32 bits hold their intermediate
    values."""
    if o.gather is None:
        return False
    sizes = {"m": k.m, "n": k.n, "k": k.k, **{f"b{i}": size for i, size in enumerate(k.batch)}}
    if any(size.as_int() is None for size in sizes.values()):
        return False
    extents = {name: size + BEYOND for name, size in sizes.items()}
    found = [bounds(e, extents) for e in (o.gather, *(g.index for g in o.guards))]
    ends = [end.as_int() for ends in found if ends is not None for end in ends]
    return None not in found and all(end is not None and abs(end) < 1 << 30 for end in ends)


def _by_producer(k: Kernel, s: CpAsync, o: Operand, mn: Side, inner: Side, ring: Ring, l: Lines) -> None:
    """A thread of the producer's warpgroup has one column of a box, and every few of its rows: values for a column's address
    and guards are computed once per block, those of a row stay in registers from block to block. If no byte is read, any
    address will do."""
    size = o.dtype.itemsize
    (row_axis, rows, first_row), (column_axis, columns, first_column) = (mn, inner) if o.major == "k" else (inner, mn)
    span, whole = ring.row_bytes // size, 16 // size
    per_row, boxes = span // s.width, columns // span
    step = k.copiers // per_row
    if o.gather is None:
        assert o.offset is not None
        l.add(f"const {STORED_TYPE[o.dtype]}* const from = {o.param} + {index_text(o.offset)};")
    l.add(f"const int row = tid / {per_row}, column = tid % {per_row} * {s.width};")
    narrow = _is_narrow(k, o)

    def cast(start: str) -> str:
        return f"(int)({start})" if narrow else start

    kind, at = ("int", {f"b{i}": f"batch{i}" for i in range(len(k.batch))}) if narrow else ("tt_i64", {})
    l.add(*(f"const int {name} = (int){b};" for b, name in at.items()))
    with l.block(f"for (int box = 0; box < {boxes}; ++box)") if boxes > 1 else nullcontext():
        first, box = (
            (f"{first_column} + box * {span}", f" + box * {rows * ring.row_bytes}") if boxes > 1 else (first_column, "")
        )
        l.add(f"const {kind} g_column = {cast(first)} + column;")
        each = -(-rows // step)
        together = TOGETHER["plain" if o.gather is None else "narrow" if narrow else "wide"]
        unroll = "TT_UNROLL" if each <= together else f"TT_UNROLL_BY({together})"
        with l.block(f"{unroll} for (int i = 0; i < {each}; ++i)"):
            l.add(f"const {kind} g_row = {cast(first_row)} + row + {step} * i;")
            tests, source, element = _source(s, o, {row_axis: "g_row", column_axis: "g_column", **at}, l, narrow)
            inside = "" if s.width == whole else f" + column % {whole} * {size}"
            dst = f"slot{box} + {offset_text(ring)}(row + {step} * i, column / {whole}){inside}"
            copy = f"tt_cp_async_{s.width * size}" if s.width * size > 2 else "tt_copy_2"
            bytes_ = s.width * size
            read = f"{' && '.join(tests)} ? {bytes_} : 0" if tests else str(bytes_)
            if rows % step:
                l.add(f"if (row + {step} * i < {rows})")
            l.add(f"{copy}({dst}, {source} + ({element}), {read});")
