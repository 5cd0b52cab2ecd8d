"""Blocks of a warpgroup's accumulator reduced in registers: partial sums of rows and of columns (decision 0026).

A lane has of 64 rows those number 16*(warp%4) + lane/4 and 8 more, and of every 8 columns 2*(lane%4) and the next. The four lanes of a
quad hold the columns of a row: 16 of 64 each. The eight lanes with one lane%4 hold 16 rows of a column: two each, of eight
columns in 32. The order in which they are joined does not depend on the plan.

    for 64 columns of 64 rows, behind a branch of their own:
        for each element:  the lets, once;  folded0[row] += v;  folded1 += v*v, of a column     all reductions together
        for 8 columns:     7 shuffles leave one column of 16 rows to each lane; store           along m
        for 2 rows:        2 shuffles; store                                                    along n

The branch is taken by whole warps. What follows it cannot be begun before it: in one basic block ptxas begins all blocks of the
tile together, and one block with the products, which it then serialises (C7514) or spills.
"""

from __future__ import annotations

from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.core.ops import neutral
from tatami.cu.epilogue_text import bounds_test, let_lines
from tatami.cu.expr_text import Scope, constant_text, index_text, scalar_text
from tatami.cu.lines import Lines
from tatami.gpu.ir import BlockFold, Kernel, StBlocks
from tatami.region.ir import Binary, Ref

HOLD = "tt_wgmma_hold(acc[i]);  // registers for one block: nothing of another is kept, or begun"
FOLD = {"sum": "add", "max": "max", "min": "min"}
PAIRS = ((16, "a"), (8, "b"), (4, "c"))
"""Each bit of the number that a column has among a lane's eight, from the least: how far apart the lanes are that share out
its two columns, and its name. The last is the first to be joined."""
Named: TypeAlias = list[tuple[str, BlockFold]]


def blocks_text(k: Kernel, s: StBlocks, l: Lines) -> None:
    """One pass over the accumulator, with the epilogue's lets once more: what leaves as elements may have left by another way."""
    folds = [(f"folded{i}", f) for i, f in enumerate(s.folds)]
    by_rows, by_columns = ([(name, f) for name, f in folds if f.along == along] for along in ("n", "m"))
    test = bounds_test(s.pred)
    with l.block("TT_UNROLL for (int i = 0; i < ROWS / 64; ++i) TT_UNROLL for (int block = 0; block < BN / 64; ++block)"):
        l.add(
            HOLD,
            "const tt_i64 first = m0 + group * ROWS + 64 * i + 16 * (warp % 4);",
            "if (first >= M || n0 + 64 * block >= N) continue;",
        )
        l.add(*(f"float {name}[2] = {{{_start(f)}, {_start(f)}}};" for name, f in by_rows))
        with l.block("TT_UNROLL for (int half = 0; half < 2; ++half)"):
            l.add(*(f"float {name};" for name, _ in by_columns))
            _columns(k, s, [(name, name, f) for name, f in by_columns], by_rows, PAIRS, l)
            if by_columns:
                column = "n0 + 64 * block + 32 * half + 16 * (lane / 4 % 2) + 8 * (lane / 8 % 2) + 2 * (lane % 4) + lane / 16"
                l.add(f"const tt_i64 n = {column}, m = first, t = m / 16;")
                _store(test, by_columns, l)
        if by_rows:
            with l.block("TT_UNROLL for (int h = 0; h < 2; ++h)"):
                for name, f in by_rows:
                    _join_quad(f, f"{name}[h]", l)
                l.add("const tt_i64 m = first + 8 * h + lane / 4, n = n0 + 64 * block, t = n / 64;")
                _store(f"lane % 4 == 0{f' && {test}' if test else ''}", [(f"{name}[h]", f) for name, f in by_rows], l)


def _columns(
    k: Kernel, s: StBlocks, into: list[tuple[str, str, BlockFold]], by_rows: Named, pairs: tuple[tuple[int, str], ...], l: Lines
) -> None:
    """Eight lanes have the same eight columns, of which one is left to each. Of two columns a lane gives one away, and gets the
    other lane's half of the one that it keeps, as soon as both are there: few live at a time. `into`: where each reduction along
    m goes, and the name that those on the way there are made of."""
    if not pairs:
        with l.block("TT_UNROLL for (int h = 0; h < 2; ++h)"):
            l.add("const int q = 4 * c + 2 * b + a;  // of this lane's eight columns")
            l.add(
                "const tt_i64 m = first + 8 * h + lane / 4, n = n0 + 64 * block + 32 * half + 8 * (q / 2) + 2 * (lane % 4) + a;"
            )
            test = bounds_test(s.pred)
            with l.block(f"if ({test})" if test else ""):
                l.add("const float acc_value = acc[i][4 * (8 * block + 4 * half + q / 2) + 2 * h + a];")
                lets = let_lines(k, s.ops, l).lets
                l.add(*(_folded(f, f"{name}[h]", lets[f.regs][0]) for name, f in by_rows))
                l.add(*(_folded(f, name, lets[f.regs][0]) for name, _, f in into))
        return
    (mask, bit), *rest = pairs
    pair = [(f"{name}_{bit}", f) for _, name, f in into]
    start = "" if rest else " = {{{0}, {0}}}"
    l.add(*(f"float {name}[2]{start.format(_start(f))};" for name, f in pair))
    with l.block(f"TT_UNROLL for (int {bit} = 0; {bit} < 2; ++{bit})"):
        inner = [(f"{name}[{bit}]", of, f) for (name, f), (_, of, _) in zip(pair, into)]
        _columns(k, s, inner, by_rows, tuple(rest), l)
    for (name, f), (target, _, _) in zip(pair, into):
        with l.block():
            given = _from_lane(f"(lane & {mask} ? {name}[0] : {name}[1])", mask)
            l.add(f"const float own = lane & {mask} ? {name}[1] : {name}[0], other = {given};")
            l.add(_folded(f, target, "other", "own"))


def _start(f: BlockFold) -> str:
    return constant_text(neutral(f.fn, DType.fp32), DType.fp32)


def _join_quad(f: BlockFold, name: str, l: Lines) -> None:
    """All of its lanes take part, those outside the result with the neutral element."""
    for mask in (1, 2):
        with l.block():
            l.add(f"const float other = {_from_lane(name, mask)};", _folded(f, name, "other"))


def _from_lane(value: str, mask: int) -> str:
    return f"tt_bits_to_f32(tt_shuffle_xor(tt_f32_to_bits({value}), {mask}))"


def _folded(f: BlockFold, name: str, value: str, before: str = "") -> str:
    known = {"folded": (before or name, DType.fp32), "value": (value, DType.fp32)}
    return f"{name} = {scalar_text(Binary(FOLD[f.fn], Ref('folded'), Ref('value')), Scope({}, known))[0]};"


def _store(test: str, folds: list[tuple[str, BlockFold]], l: Lines) -> None:
    with l.block(f"if ({test})" if test else ""):
        l.add(*(f"{f.ptr}[{index_text(f.index)}] = {name};" for name, f in folds))
