"""The two products of the `pair` template on SM80: rows * keys to scores, weights * values to the result.

Tensor cores read fragments from shared memory (`mma_text.py`) and weights from registers. Ordinary multiply-adds (`fma`)
keep to the same places: of every eight columns a lane has two, 2 * (lane % 4) and the one after, in rows lane / 4 and + 8
of every sixteen. So a weight that a lane lacks is in another lane of its quad.
"""

from __future__ import annotations

from tatami.cu.expr_text import SHORT
from tatami.cu.lines import Lines
from tatami.cu.mma_text import offset_text, read_a, read_b
from tatami.gpu.ir import Kernel, Operand, Ring, Weights

ROWS_OF_LANE = "TT_UNROLL for (int i = 0; i < WM / 16; ++i) TT_UNROLL for (int h = 0; h < 2; ++h)"
STEPS = "TT_UNROLL for (int q = 0; q < 4; ++q)"


def scores_text(k: Kernel, w: Weights, rings: tuple[Ring, Ring], slots: tuple[str, str], l: Lines) -> None:
    """The first product of a block."""
    l.add("TT_UNROLL for (int i = 0; i < WM / 16; ++i) TT_UNROLL for (int j = 0; j < BK / 8; ++j)")
    l.add("  TT_UNROLL for (int e = 0; e < 4; ++e) s[i][j][e] = 0.0f;")
    with l.block():
        l.add(f"const tt_u32 slot_a = {slots[0]}, slot_b = {slots[1]};")
        if w.shape == "fma":
            with l.block("TT_UNROLL_BY(2) for (int kk = 0; kk < DEPTH; kk += 4)"):
                l.add("float a[WM / 16][2][4];")
                with l.block(ROWS_OF_LANE):
                    l.add(_row_of_four(w.left, rings[0]))
                _multiply_add(w.right, rings[1], "s", "BK", l)
            return
        # Each step has addresses of its own, of which the loop over blocks would keep all in registers.
        unroll = "TT_UNROLL" if w.steps <= 4 else "TT_UNROLL_BY(4)"
        with l.block(f"{unroll} for (int kk = 0; kk < DEPTH / 16; ++kk)"):
            l.add("tt_u32 a[WM / 16][4];")
            l.add(f"TT_UNROLL for (int i = 0; i < WM / 16; ++i) {read_a(w.left, rings[0], 'a[i]')}")
            with l.block("TT_UNROLL for (int j = 0; j < BK / 16; ++j)"):
                l.add("tt_u32 b[4];", read_b(w.right, rings[1], "b"))
                _multiply(k, "s[i]", "a[i]", l)


def result_text(k: Kernel, w: Weights, ring: Ring, slot: str, l: Lines) -> None:
    """The second product of a block: `p` has the weights, or `s` where multiply-adds take them."""
    with l.block():
        l.add(f"const tt_u32 slot_b = {slot};")
        if w.shape == "fma":
            with l.block("TT_UNROLL for (int kk = 0; kk < BK; kk += 4)"):
                l.add("float a[WM / 16][2][4];", f"{ROWS_OF_LANE} {STEPS}")
                l.add("  a[i][h][q] = tt_quad_at(s[i][kk / 8][2 * h + q % 2], kk % 8 / 2 + q / 2);")
                _multiply_add(k.b, ring, "acc", "WN", l)
            return
        l.add("TT_UNROLL for (int kk = 0; kk < BK / 16; ++kk)")
        with l.block("TT_UNROLL for (int j = 0; j < WN / 16; ++j)"):
            l.add("tt_u32 b[4];", read_b(k.b, ring, "b"))
            _multiply(k, "acc[i]", "p[i][kk]", l)


def _multiply(k: Kernel, to: str, a: str, l: Lines) -> None:
    with l.block("TT_UNROLL for (int i = 0; i < WM / 16; ++i)"):
        for half in (0, 1):
            at = f"{to}[2 * j{' + 1' if half else ''}]"
            l.add(f"tt_mma_m16n8k16_{SHORT[k.b.dtype]}({at}, {a}, b[{2 * half}], b[{2 * half + 1}]);")


def _row_of_four(o: Operand, ring: Ring) -> str:
    """Steps kk .. kk + 3 of a row of `slot_a`."""
    offset, row = offset_text(ring), "warp_m + 16 * i + 8 * h + lane / 4"
    if o.major == "k":
        return f"tt_load_shared_v4(a[i][h], slot_a + {offset}({row}, kk / 4));"
    at = f"{offset}(kk + q, (warp_m + 16 * i + 8 * h) / 4 + lane / 16) + lane / 4 % 4 * 4"
    return f"{STEPS} a[i][h][q] = tt_bits_to_f32(tt_load_shared_v1(slot_a + {at}));"


def _multiply_add(o: Operand, ring: Ring, to: str, columns: str, l: Lines) -> None:
    """Steps kk .. kk + 3 of all columns of `slot_b`, eight at a time, added to `to`."""
    offset = offset_text(ring)
    with l.block(f"TT_UNROLL for (int j = 0; j < {columns} / 8; ++j)"):
        l.add("float b[2][4];")
        if o.major == "k":
            l.add("TT_UNROLL for (int e = 0; e < 2; ++e)")
            l.add(f"  tt_load_shared_v4(b[e], slot_b + {offset}(8 * j + 2 * (lane % 4) + e, kk / 4));")
        else:
            at = f"{offset}(kk + q, 2 * j + lane % 4 / 2) + lane % 2 * 8"
            l.add(f"{STEPS} tt_load_shared_v2(b[0][q], b[1][q], slot_b + {at});")
        l.add(f"{STEPS} {ROWS_OF_LANE} TT_UNROLL for (int e = 0; e < 2; ++e)")
        l.add(f"  {to}[i][j][2 * h + e] = tt_fma(a[i][h][q], b[e][q], {to}[i][j][2 * h + e]);")
