"""Blocks of a warpgroup's accumulator reduced in registers: partial sums of rows and of columns (decision 0026).

A lane holds rows 16*(warp%4) + lane/4 and + 8 of 64, and columns 2*(lane%4) and + 1 of every 8. The four lanes of a quad hold
the columns of a row: 16 of 64 each. The eight lanes with one lane%4 hold 16 rows of a column: two each, for eight columns in 32.
The order in which they are joined does not depend on the plan.

    for 64 columns of 64 rows, behind a branch of their own:
        for each element:  the lets, once;  folded0[row] += v;  folded1 += v*v, of a column     all reductions together
        for 8 columns:     7 shuffles leave one column of 16 rows to each lane; store           along m
        for 2 rows:        2 shuffles; store                                                    along n

The branch is taken by whole warps. No later instruction can be moved before it: in one basic block ptxas interleaves all blocks
of the tile, and a block with the products, which it then serialises (C7514) or spills.
"""

from __future__ import annotations

from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.core.ops import joining, neutral
from tatami.cu.expr_text import Scope, constant_text, index_text, scalar_text
from tatami.cu.lines import Lines
from tatami.cu.products.epilogue import bounds_test, let_lines
from tatami.gpu.ir import BlockFold, Kernel, StBlocks
from tatami.region.ir import Binary, Const, Ref, RegionExpr, Select, Unary

HOLD = "tt_wgmma_hold(acc[i]);  // registers for one block: nothing of another is kept, or begun"
"""C line that pins the accumulator's registers for one block."""
"""Operation of a reduction -> scalar operation that joins two results."""
PAIRS = ((16, "a"), (8, "b"), (4, "c"))
"""(distance of the lanes that share out two columns, name), for each bit of a column's number among a lane's eight, from the
lowest. The last is joined first."""
COLUMN = "n0 + 64 * block + 32 * half + 8 * (q / 2) + 2 * (lane % 4) + a"
"""Number of the column that a lane holds before columns are exchanged."""
OWN_COLUMN = "n0 + 64 * block + 32 * half + 16 * (lane / 4 % 2) + 8 * (lane / 8 % 2) + 2 * (lane % 4) + lane / 16"
"""Number of the column that a lane has after columns are exchanged."""
FINITE = Select(Unary("isinf", Ref("x")), Const(0.0, DType.fp32), Ref("x"))
"""The value x, or 0 if it is infinite."""
LESS = Unary("exp", Binary("sub", Ref("x"), Ref("top")))
"""The exponential of x minus its row's or column's maximum `top`."""
Named: TypeAlias = list[tuple[str, BlockFold]]


def blocks_text(k: Kernel, s: StBlocks, l: Lines) -> None:
    """One pass over the accumulator, in which the epilogue's lets are computed again: elements may have been stored another
    way. A second pass over the same 64 columns has the results that need their maximum."""
    names = {f.ptr: f"folded{i}" for i, f in enumerate(s.folds)}
    rows: Named = [(names[f.ptr], f) for f in s.folds if f.along == "n" and not f.top]
    less: Named = [(names[f.ptr], f) for f in s.folds if f.top]
    columns: Named = [(names[f.ptr], f) for f in s.folds if f.along == "m"]
    test = bounds_test(s.pred)
    with l.block("TT_UNROLL for (int i = 0; i < ROWS / 64; ++i) TT_UNROLL for (int block = 0; block < BN / 64; ++block)"):
        l.add(HOLD, "const tt_i64 first = m0 + group * ROWS + 64 * i + 16 * (warp % 4);")
        l.add("if (first >= M || n0 + 64 * block >= N) continue;")
        _rows(rows, l)
        with l.block("TT_UNROLL for (int half = 0; half < 2; ++half)"):
            l.add(*(f"float {name};" for name, _ in columns))
            _eight_columns(k, s, rows, columns, {name: name for name, _ in columns}, PAIRS, l)
            if columns:
                l.add(f"const tt_i64 n = {OWN_COLUMN}, m = first, t = m / 16;")
                _store(test, columns, l)
        _join_quads(rows, l)
        for name, f in less:
            finite = (_text(FINITE, {"x": f"{names[f.top]}[{h}]"}) for h in (0, 1))
            l.add(f"const float {name}_top[2] = {{{', '.join(finite)}}};")
        if less:
            _rows(less, l)
            with l.block("TT_UNROLL for (int half = 0; half < 2; ++half)"):
                _eight_columns(k, s, less, [], {}, PAIRS, l)
            _join_quads(less, l)
        if rows:
            with l.block("TT_UNROLL for (int h = 0; h < 2; ++h)"):
                l.add("const tt_i64 m = first + 8 * h + lane / 4, n = n0 + 64 * block, t = n / 64;")
                whole = [(f"{name}[h]", f) for name, f in (*rows, *less)]
                _store(f"lane % 4 == 0{f' && {test}' if test else ''}", whole, l)


def _eight_columns(
    k: Kernel,
    s: StBlocks,
    rows: Named,
    columns: Named,
    into: dict[str, str],
    pairs: tuple[tuple[int, str], ...],
    l: Lines,
) -> None:
    """Eight lanes hold the same eight columns of 16 rows; one column is left to each, at `into`. A lane gives away one of two
    columns, and gets the other lane's part of the one it keeps, as soon as both exist, so that few values live at a time."""
    if not pairs:
        _element(k, s, rows, [(into[name], f) for name, f in columns], l)
        return
    (mask, bit), *rest = pairs
    for name, f in columns:
        start = "" if rest else f" = {{{_start(f)}, {_start(f)}}}"
        l.add(f"float {name}_{bit}[2]{start};")
    with l.block(f"TT_UNROLL for (int {bit} = 0; {bit} < 2; ++{bit})"):
        halves = {name: f"{name}_{bit}[{bit}]" for name, _ in columns}
        _eight_columns(k, s, rows, columns, halves, tuple(rest), l)
    for name, f in columns:
        pair = f"{name}_{bit}"
        with l.block():
            given = _from_lane(f"(lane & {mask} ? {pair}[0] : {pair}[1])", mask)
            l.add(f"const float own = lane & {mask} ? {pair}[1] : {pair}[0], other = {given};")
            l.add(f"{into[name]} = {_joined(f, 'own', 'other')};")


def _element(k: Kernel, s: StBlocks, rows: Named, columns: Named, l: Lines) -> None:
    """Two rows of one column, each added to the results that it belongs to."""
    test = bounds_test(s.pred)
    with l.block("TT_UNROLL for (int h = 0; h < 2; ++h)"):
        l.add("const int q = 4 * c + 2 * b + a;  // of this lane's eight columns")
        l.add(f"const tt_i64 m = first + 8 * h + lane / 4, n = {COLUMN};")
        with l.block(f"if ({test})" if test else ""):
            l.add("const float acc_value = acc[i][4 * (8 * block + 4 * half + q / 2) + 2 * h + a];")
            lets = let_lines(k, s.ops, l).lets
            for name, f in (*((f"{name}[h]", f) for name, f in rows), *columns):
                value = lets[f.regs][0]
                if f.top:
                    value = _text(LESS, {"x": value, "top": f"{name.removesuffix('[h]')}_top[h]"})
                l.add(f"{name} = {_joined(f, name, value)};")


def _rows(folds: Named, l: Lines) -> None:
    l.add(*(f"float {name}[2] = {{{_start(f)}, {_start(f)}}};" for name, f in folds))


def _join_quads(folds: Named, l: Lines) -> None:
    """Join the results of a quad's lanes; lanes outside the result take part with the neutral element, and all lanes get the
    joined value."""
    if folds:
        with l.block("TT_UNROLL for (int h = 0; h < 2; ++h)"):
            for name, f in folds:
                for mask in (1, 2):
                    l.add(f"{name}[h] = {_joined(f, f'{name}[h]', _from_lane(f'{name}[h]', mask))};")


def _start(f: BlockFold) -> str:
    return constant_text(neutral(f.fn, DType.fp32), DType.fp32)


def _from_lane(value: str, mask: int) -> str:
    return f"tt_bits_to_f32(tt_shuffle_xor(tt_f32_to_bits({value}), {mask}))"


def _joined(f: BlockFold, a: str, b: str) -> str:
    return _text(Binary(joining(f.fn), Ref("a"), Ref("b")), {"a": a, "b": b})


def _text(e: RegionExpr, values: dict[str, str]) -> str:
    return scalar_text(e, Scope({}, {name: (text, DType.fp32) for name, text in values.items()}))[0]


def _store(test: str, folds: Named, l: Lines) -> None:
    with l.block(f"if ({test})" if test else ""):
        l.add(*(f"{f.ptr}[{index_text(f.index)}] = {name};" for name, f in folds))
