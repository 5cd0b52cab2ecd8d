"""Blocks of a warpgroup's accumulator reduced in registers: partial sums of rows and of columns (decision 0026).

A lane has of 64 rows those number 16*(warp%4) + lane/4 and 8 more, and of every 8 columns 2*(lane%4) and the next. The four lanes of a
quad hold the columns of a row: 16 of 64 each. The eight lanes with one lane%4 hold 16 rows of a column: two each. The order
in which they are joined does not depend on the plan.
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.ops import neutral
from tatami.cu.epilogue_text import bounds_test, let_lines
from tatami.cu.expr_text import Scope, constant_text, index_text, scalar_text
from tatami.cu.lines import Lines
from tatami.gpu.ir import Kernel, StBlocks
from tatami.region.ir import Binary, Ref

HOLD = "tt_wgmma_hold(acc[i]);  // registers for one block: nothing of another is kept, or begun"
FOLD = {"sum": "add", "max": "max", "min": "min"}


def blocks_text(k: Kernel, s: StBlocks, l: Lines) -> None:
    """One loop over blocks, with the epilogue's lets once more: what leaves as elements may have left by another way."""
    rows = "m0 + group * ROWS + 64 * i + 16 * (warp % 4)"
    start = f"float folded = {constant_text(neutral(s.fn, DType.fp32), DType.fp32)};"
    with l.block("TT_UNROLL for (int i = 0; i < ROWS / 64; ++i)"):
        if s.along == "n":
            with l.block("TT_UNROLL for (int block = 0; block < BN / 64; ++block) TT_UNROLL for (int h = 0; h < 2; ++h)"):
                l.add(HOLD)
                l.add(f"const tt_i64 m = {rows} + 8 * h + lane / 4;", start)
                with l.block("TT_UNROLL for (int e = 0; e < 16; ++e)"):
                    l.add("const tt_i64 n = n0 + 64 * block + 8 * (e / 2) + 2 * (lane % 4) + e % 2;")
                    _fold(k, s, "acc[i][4 * (8 * block + e / 2) + 2 * h + e % 2]", l)
                _join(s, (1, 2), l)
                l.add("const tt_i64 n = n0 + 64 * block, t = n / 64;")
                _store(s, "lane % 4 == 0", l)
            return
        with l.block("TT_UNROLL for (int j = 0; j < BN / 4; ++j)"):
            l.add(f"if (j % 8 == 0) {HOLD}")
            l.add("const tt_i64 n = n0 + 8 * (j / 2) + 2 * (lane % 4) + j % 2;", start)
            with l.block("TT_UNROLL for (int h = 0; h < 2; ++h)"):
                l.add(f"const tt_i64 m = {rows} + 8 * h + lane / 4;")
                _fold(k, s, "acc[i][4 * (j / 2) + 2 * h + j % 2]", l)
            _join(s, (4, 8, 16), l)
            l.add(f"const tt_i64 m = {rows}, t = m / 16;")
            _store(s, "lane < 4", l)


def _fold(k: Kernel, s: StBlocks, element: str, l: Lines) -> None:
    test = bounds_test(s.pred)
    with l.block(f"if ({test})" if test else ""):
        l.add(f"const float acc_value = {element};")
        value, _ = let_lines(k, s.ops, l).lets[s.regs]
        l.add(f"folded = {_folded(s, value)};")


def _join(s: StBlocks, masks: tuple[int, ...], l: Lines) -> None:
    """All lanes of the warp take part, those outside the result with the neutral element."""
    for mask in masks:
        with l.block():
            l.add(f"const float other = tt_bits_to_f32(tt_shuffle_xor(tt_f32_to_bits(folded), {mask}));")
            l.add(f"folded = {_folded(s, 'other')};")


def _folded(s: StBlocks, value: str) -> str:
    known = {"folded": ("folded", DType.fp32), "value": (value, DType.fp32)}
    return scalar_text(Binary(FOLD[s.fn], Ref("folded"), Ref("value")), Scope({}, known))[0]


def _store(s: StBlocks, who: str, l: Lines) -> None:
    test = bounds_test(s.pred)
    l.add(f"if ({who}{f' && {test}' if test else ''}) {s.ptr}[{index_text(s.index)}] = folded;")
