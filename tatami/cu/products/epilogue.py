"""The epilogue on accumulator fragments, and the stores.

Accumulators of mma.m16n8 and wgmma lie alike: of 8 columns a lane has columns 2*(lane%4) and +1, in rows lane/4 and
+8. Lets are computed on single elements in registers; four lanes of a quad exchange 16-bit results so that each
stores 16 bytes of one row.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, var
from tatami.cu.expr_text import SHORT, STORED_TYPE, VALUE_TYPE, Scope, Value, index_text, scalar_text
from tatami.cu.lines import Lines
from tatami.gpu.ir import Kernel, Ring
from tatami.gpu.ir import Kernel as GpuKernel
from tatami.gpu.statement_ir import Epilogue, StGlobalVec, StMatrix
from tatami.region.ir import Let, Read, Ref, RegionExpr
from tatami.region.walk import rewrite


def bounds_test(pred: tuple[str, ...], n: str = "n") -> str:
    """C test that the element is inside the result, for the axes in `pred`; "" if none is."""
    tests = [{"m": "m < M", "n": f"{n} < N"}[p] for p in pred]
    return " && ".join(tests)


def let_lines(kernel: Kernel, lets: tuple[Let, ...], lines: Lines, known: dict[str, Value] | None = None) -> Scope:
    """The scope after printing each let as a C constant; `acc_value`, or the values `known`, and their indices are in scope."""
    given = {"acc": ("acc_value", kernel.acc_dtype)} if known is None else known
    scope = Scope({p.name: p.dtype for p in kernel.params}, given)
    for let in lets:
        text, _ = scalar_text(let.expr, scope)
        lines.add(f"const {VALUE_TYPE[let.dtype]} {let.name} = {text};")
        scope.lets[let.name] = (let.name, let.dtype)
    return scope


def stored(value: tuple[str, DType], to: DType) -> str:
    """The C text of a let's value as an element of a buffer."""
    text, d = value
    if to in SHORT:
        return f"tt_to_{SHORT[to]}({text})"
    if d == to:
        return text
    return f"({text} != 0)" if to == DType.bool else f"({STORED_TYPE[to]}){text}"


class Fragments(NamedTuple):
    """The fragments of a warp or a warpgroup, and the C texts that place them in the result."""

    row_blocks: int
    """Number of blocks i, each of two halves h of 8 rows."""
    column_blocks: int
    """Number of blocks j of 8 columns."""
    row: str
    """Row of a lane in block i, half h."""
    column: str
    """First column of the fragments."""
    acc: Callable[[str, str, str], str]
    """Name of element e of block i, j."""


def fragment_epilogue(
    kernel: GpuKernel,
    epilogue: Epilogue,
    stores: tuple[StGlobalVec, ...],
    lines: Lines,
    tile: Fragments,
) -> None:
    """Print the epilogue of fragments. Blocks of 8 columns are processed four at a time if every store is 8 wide."""
    column, acc = tile.column, tile.acc
    wide = all(s.width == 8 for s in stores)
    lines.add(f"TT_UNROLL for (int i = 0; i < {tile.row_blocks}; ++i)")
    lines.add("TT_UNROLL for (int h = 0; h < 2; ++h) {")
    lines.depth += 1
    lines.add(f"const tt_i64 m = {tile.row};")
    if wide:
        with lines.block(f"TT_UNROLL for (int jj = 0; jj < {tile.column_blocks // 4}; ++jj)"):
            for number, _ in enumerate(stores):
                lines.add(f"tt_u32 packed{number}[4];")
            with lines.block("TT_UNROLL for (int q = 0; q < 4; ++q)"):
                fragment_pair(kernel, epilogue, stores, lines, "4 * jj + q", column, acc)
                for number, s in enumerate(stores):
                    lines.add(f"packed{number}[q] = tt_pack_{SHORT[_dtype(kernel, s)]}(y{number}[0], y{number}[1]);")
            lines.add(f"const tt_i64 n = {column} + 32 * jj + 8 * (lane % 4);")
            for number, s in enumerate(stores):
                p = f"packed{number}"
                lines.add(f"tt_quad_transpose({p}, lane);")
                store = f"tt_store_global_v4({s.ptr} + {index_text(s.index)}, {p}[0], {p}[1], {p}[2], {p}[3]);"
                lines.add(_guarded(bounds_test(s.pred), store))
    else:
        with lines.block(f"TT_UNROLL for (int j = 0; j < {tile.column_blocks}; ++j)"):
            fragment_pair(kernel, epilogue, stores, lines, "j", column, acc)
            lines.add(f"const tt_i64 n = {column} + 8 * j + 2 * (lane % 4);")
            for number, s in enumerate(stores):
                _store_pair(kernel, s, f"y{number}", lines)
    lines.depth -= 1
    lines.add("}")


def quad_epilogue(
    kernel: GpuKernel, epilogue: Epilogue, stores: tuple[StGlobalVec, ...], lines: Lines, m0: str, n0: str
) -> None:
    """The epilogue of the `fma` template: four neighbouring columns of a thread at a time; `m0`, `n0` are the tile's first
    coordinates."""
    with lines.block("TT_UNROLL for (int i = 0; i < TM; ++i) TT_UNROLL for (int g = 0; g < TN / 4; ++g)"):
        lines.add(f"const tt_i64 m = {m0} + lane_m + i % 4 + i / 4 * 32, n_first = {n0} + lane_n + g * 16;")
        neighbours(kernel, epilogue, stores, lines, 4, "acc[i][4 * g + e]")


def exchanged_epilogue(
    kernel: GpuKernel, epilogue: Epilogue, stores: tuple[StGlobalVec, ...], lines: Lines, ring: Ring, m0: str, n0: str
) -> None:
    """The epilogue of fragments that pass through a ring: 16 rows of a warp at a time are written in the accumulators' layout,
    and read with as many neighbours of a row per lane as one store has."""
    width = max(s.width for s in stores)
    pitch = ring.row_bytes // 4
    with lines.block("TT_UNROLL for (int i = 0; i < WM / 16; ++i)"):
        slot = f"{ring.base} + i % {ring.slots} * {ring.slot_bytes}" if ring.slots > 1 else f"{ring.base}"
        lines.add(f"float* const own = (float*)(smem + {slot}) + warp * 16 * {pitch};")
        if ring.slots == 1:
            lines.add("tt_sync_warp();  // all lanes have taken the rows before")
        lines.add("TT_UNROLL for (int j = 0; j < WN / 8; ++j) TT_UNROLL for (int e = 0; e < 4; ++e)")
        lines.add(
            f"  own[(lane / 4 + e / 2 * 8) * {pitch} + 8 * j + 2 * (lane % 4) + e % 2] = acc[i][j][e];", "tt_sync_warp();"
        )
        with lines.block(f"TT_ROLLED for (int part = lane; part < WN / {width} * 16; part += 32)"):
            lines.add(f"const int row = part / (WN / {width}), first = part % (WN / {width}) * {width};")
            lines.add(f"const tt_i64 m = {m0} + warp_m + 16 * i + row, n_first = {n0} + warp_n + first;")
            neighbours(kernel, epilogue, stores, lines, width, f"own[row * {pitch} + first + e]")


def neighbours(
    kernel: GpuKernel, epilogue: Epilogue, stores: tuple[StGlobalVec, ...], lines: Lines, count: int, acc: str
) -> None:
    """The epilogue of a thread's `count` neighbouring columns from `n_first`; `acc` is the text of column e."""
    for number, s in enumerate(stores):
        lines.add(f"{VALUE_TYPE[_dtype(kernel, s)]} y{number}[{count}] = {{{', '.join('0' * count)}}};")
    _elements(kernel, epilogue, stores, lines, Columns(count, "n_first + e", acc, {}))
    for number, s in enumerate(stores):
        d, y = _dtype(kernel, s), f"y{number}"
        for first in range(0, count, s.width):
            n = f"n_first + {first}" if first or s.width == 1 else "n_first"
            at = index_text(substitute(s.index, {"n": var("n_first") + expr(first)}))
            test = bounds_test(s.pred, n)
            if s.width == 1:
                lines.add(_guarded(test, f"{s.ptr}[{at}] = {stored((f'{y}[{first}]', d), d)};"))
                continue
            each = range(first, first + s.width)
            words = [f"tt_f32_to_bits({y}[{e}])" for e in each] if d == DType.fp32 else []
            if d in SHORT:
                words = [f"tt_pack_{SHORT[d]}({y}[{e}], {y}[{e + 1}])" for e in each[::2]]
            lines.add(_guarded(test, f"tt_store_global_v{len(words)}({s.ptr} + {at}, {', '.join(words)});"))


def _wide_lines(
    kernel: Kernel, epilogue: Epilogue, pred: tuple[str, ...], count: int, lines: Lines
) -> tuple[tuple[Let, ...], dict[str, Value]]:
    """Print the epilogue's wide reads for `count` columns from `n_first`. Returns the lets that use them in column e, and the
    values known there. Vectors that begin outside the result are not read; no element of theirs is used."""
    dtypes = {p.name: p.dtype for p in kernel.params}
    known: dict[str, Value] = {}
    names: dict[RegionExpr, RegionExpr] = {}
    for number, w in enumerate(epilogue.wide):
        name, d = f"wide{number}", dtypes[w.param]
        lines.add(f"{STORED_TYPE[d]} {name}[{count}];")
        for first in range(0, count, w.width):
            at = index_text(substitute(w.index, {"n": var("n_first") + expr(first)}))
            test = bounds_test(pred, f"n_first + {first}" if first else "n_first")
            to = f"{name} + {first}" if first else name
            lines.add(_guarded(test, f"tt_read_lanes<{w.width}>({to}, {w.param} + {at});"))
        names[Read(w.param, (w.index,))] = Ref(name)
        known[name] = (f"tt_value({name}[e])", d)
    if not names:
        return epilogue.ops, known
    ops = (msgspec.structs.replace(let, expr=rewrite(let.expr, lambda e: names.get(e, e))) for let in epilogue.ops)
    return tuple(ops), known


def _dtype(kernel: Kernel, s: StGlobalVec | StMatrix) -> DType:
    return next(p.dtype for p in kernel.params if p.name == s.ptr)


def fragment_pair(
    kernel: Kernel,
    epilogue: Epilogue,
    stores: tuple[StGlobalVec | StMatrix, ...],
    lines: Lines,
    j: str,
    column: str,
    acc: Callable[[str, str, str], str],
) -> None:
    """Print y<number>[e], the values of the two adjacent results of a lane."""
    for number, s in enumerate(stores):
        d = _dtype(kernel, s)
        lines.add(f"{VALUE_TYPE[d]} y{number}[2] = {{0, 0}};")
    n = f"{column} + 8 * ({j}) + 2 * (lane % 4)"
    if epilogue.wide:
        lines.add(f"const tt_i64 n_first = {n};")
        n = "n_first"
    known: dict[str, Value] = {}
    for source in {s.fetched for s in stores if isinstance(s, StMatrix) and s.fetched}:
        d = next(p.dtype for p in kernel.params if p.name == source)
        known["fetched"] = (f"tt_value(tt_{SHORT[d]}{{(tt_u16)(fetched[e4] >> 16 * e)}})", d)
    _elements(kernel, epilogue, stores, lines, Columns(2, f"{n} + e", acc("i", j, "e"), known))


class Columns(NamedTuple):
    """Neighbouring columns of a thread."""

    width: int
    n: str
    """C text of the number of column e."""
    acc: str
    """C text of the accumulator in column e."""
    known: dict[str, Value]
    """Other values of column e, by name."""


def _elements(
    kernel: Kernel,
    epilogue: Epilogue,
    stores: tuple[StGlobalVec | StMatrix, ...],
    lines: Lines,
    columns: Columns,
) -> None:
    """Print the values y<number>[e] of the columns of a thread. Where vectors hold all columns, these are inside or outside the result together."""
    count, n, acc, known = columns
    pred = stores[0].pred if stores and epilogue.ops else ()  # a pass that finds values per row has neither
    test = bounds_test(pred)
    together = bool(epilogue.wide) and all(w.width == count for w in epilogue.wide)
    with lines.block(f"if ({bounds_test(pred, 'n_first')})") if together and test else nullcontext():
        ops, values = _wide_lines(kernel, epilogue, () if together else pred, count, lines)
        with lines.block(f"TT_UNROLL for (int e = 0; e < {count}; ++e)"):
            lines.add(f"const tt_i64 n = {n};")
            with nullcontext() if together else lines.block(f"if ({test})" if test else ""):
                lines.add(f"const float acc_value = {acc};")
                given = {"acc": ("acc_value", kernel.acc_dtype), **values, **known}
                _values(kernel, stores, let_lines(kernel, ops, lines, given), lines)


def _values(kernel: Kernel, stores: tuple[StGlobalVec | StMatrix, ...], scope: Scope, lines: Lines) -> None:
    for number, s in enumerate(stores):
        value, d = scope.lets[s.regs]
        to = _dtype(kernel, s)
        text = value if VALUE_TYPE[d] == VALUE_TYPE[to] else f"({VALUE_TYPE[to]}){value}"
        lines.add(f"y{number}[e] = {text};")


def _store_pair(kernel: Kernel, s: StGlobalVec, y: str, lines: Lines) -> None:
    d = _dtype(kernel, s)
    if s.width >= 2 and d in SHORT:
        pack = f"tt_pack_{SHORT[d]}({y}[0], {y}[1])"
        lines.add(_guarded(bounds_test(s.pred), f"tt_store_global_v1({s.ptr} + {index_text(s.index)}, {pack});"))
        return
    if s.width >= 2 and d == DType.fp32:
        pair = f"tt_f32_to_bits({y}[0]), tt_f32_to_bits({y}[1])"
        lines.add(_guarded(bounds_test(s.pred), f"tt_store_global_v2({s.ptr} + {index_text(s.index)}, {pair});"))
        return
    for e in (0, 1):
        at = index_text(_shifted(s.index, e))
        test = bounds_test(s.pred, "n" if e == 0 else "n + 1")
        lines.add(_guarded(test, f"{s.ptr}[{at}] = {stored((f'{y}[{e}]', d), d)};"))


def _shifted(index: Expr, e: int) -> Expr:
    return substitute(index, {"n": var("n") + expr(e)})


def _guarded(test: str, statement: str) -> str:
    return f"if ({test}) {statement}" if test else statement
