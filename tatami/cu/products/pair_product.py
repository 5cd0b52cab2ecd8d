"""The products of the `pair` template on SM80: rows * keys to scores, weights * values to the result.

Tensor cores read fragments from shared memory (`cu/products/mma.py`) and weights from registers. Ordinary multiply-adds (`fma`)
use the same layout: a lane has two of every eight columns, 2 * (lane % 4) and the next, in rows lane / 4 and + 8 of every
sixteen. So a weight that a lane lacks is in another lane of its quad.

A fragment of m16n8k8 (tf32) has lane % 4 and + 4 of eight keys. The sum does not depend on their order: those two stand for
the keys whose weights the lane has, and the values are read in the same order.
"""

from __future__ import annotations

from tatami.cu.expr_text import SHORT
from tatami.cu.lines import Lines
from tatami.cu.products.mma import WORDS, offset_text, read_a, read_b
from tatami.gpu.ir import Kernel, Operand, Ring, Weights
from tatami.plan.ir import INST_K

ROWS_OF_LANE = "TT_UNROLL for (int i = 0; i < WM / 16; ++i) TT_UNROLL for (int h = 0; h < 2; ++h)"
"""C loops over the rows of a lane."""
STEPS = "TT_UNROLL for (int q = 0; q < 4; ++q)"
"""C loop over four steps of k."""


def scores_text(k: Kernel, w: Weights, number: int, rings: tuple[Ring, Ring], slots: tuple[str, str], l: Lines) -> None:
    """Print a first product of a block."""
    left, right, s = w.firsts[number].left, w.firsts[number].right, w.tiles[number]
    l.add("TT_UNROLL for (int i = 0; i < WM / 16; ++i) TT_UNROLL for (int j = 0; j < BK / 8; ++j)")
    l.add(f"  TT_UNROLL for (int e = 0; e < 4; ++e) {s}[i][j][e] = 0.0f;")
    with l.block():
        l.add(f"const tt_u32 slot_a = {slots[0]}, slot_b = {slots[1]};")
        if w.shape == "fma":
            with l.block("TT_UNROLL_BY(2) for (int kk = 0; kk < DEPTH; kk += 4)"):
                l.add("float a[WM / 16][2][4];")
                with l.block(ROWS_OF_LANE):
                    l.add(_row_of_four(left, rings[0]))
                _multiply_add(right, rings[1], s, "BK", l)
            return
        # Each step has addresses of its own, and the loop over blocks would keep all of them in registers.
        deep = INST_K[w.shape]
        unroll = "TT_UNROLL" if 16 * w.steps <= 4 * deep else "TT_UNROLL_BY(4)"
        with l.block(f"{unroll} for (int kk = 0; kk < DEPTH / {deep}; ++kk)"):
            l.add("tt_u32 a[WM / 16][4];")
            l.add(f"TT_UNROLL for (int i = 0; i < WM / 16; ++i) {read_a(left, rings[0], 'a[i]')}")
            if w.shape == "m16n8k8":
                l.add("TT_UNROLL for (int i = 0; i < WM / 16; ++i) tt_round_words(a[i]);")
            with l.block("TT_UNROLL for (int j = 0; j < BK / 16; ++j)"):
                l.add("tt_u32 b[4];", read_b(right, rings[1], "b"))
                if w.shape == "m16n8k8":
                    l.add("tt_round_words(b);")
                _multiply(k, w, f"{s}[i]", "a[i]", l)


def result_text(k: Kernel, w: Weights, ring: Ring, slot: str, l: Lines) -> None:
    """Print the second product of a block: the weights are in `p`, or in `s` for multiply-adds."""
    with l.block():
        l.add(f"const tt_u32 slot_b = {slot};")
        if w.shape == "fma":
            with l.block("TT_UNROLL for (int kk = 0; kk < BK; kk += 4)"):
                l.add("float a[WM / 16][2][4];", f"{ROWS_OF_LANE} {STEPS}")
                l.add("  a[i][h][q] = tt_quad_at(s[i][kk / 8][2 * h + q % 2], kk % 8 / 2 + q / 2);")
                _multiply_add(k.b, ring, "acc", "WN", l)
            return
        l.add(f"TT_UNROLL for (int kk = 0; kk < BK / {INST_K[w.shape]}; ++kk)")
        with l.block("TT_UNROLL for (int j = 0; j < WN / 16; ++j)"):
            l.add("tt_u32 b[4];", *([read_b(k.b, ring, "b")] if w.shape == "m16n8k16" else _keys_of_lane(k.b, ring)))
            _multiply(k, w, "acc[i]", "p[i][kk]", l)


def _keys_of_lane(o: Operand, ring: Ring) -> list[str]:
    """Columns 16 * j .. and keys 8 * kk + 2 * (lane % 4) and + 1 of `slot_b`, as two B fragments of m16n8k8."""
    offset = offset_text(ring)
    if o.major == "mn":
        # a swizzle stays within 128 bytes, so that all columns share a few addresses
        at = f"{offset}(8 * kk + 2 * (lane % 4) + r % 2, j % 2 * 4 + r / 2 * 2 + lane / 16)"
        return [f"{WORDS} b[r] = tt_load_shared_v1(slot_b + {at} + j / 2 * 128 + lane / 4 % 4 * 4);", "tt_round_words(b);"]
    at = f"{offset}(16 * j + 8 * half + lane / 4, 2 * kk + lane % 4 / 2) + lane % 2 * 8"
    return [
        "TT_UNROLL for (int half = 0; half < 2; ++half) {",
        f"  float x, y; tt_load_shared_v2(x, y, slot_b + {at});",
        "  b[2 * half] = tt_to_tf32(x), b[2 * half + 1] = tt_to_tf32(y);",
        "}",
    ]


def _multiply(k: Kernel, w: Weights, to: str, a: str, l: Lines) -> None:
    kind = SHORT.get(k.b.dtype, "tf32")
    with l.block("TT_UNROLL for (int i = 0; i < WM / 16; ++i)"):
        for half in (0, 1):
            at = f"{to}[2 * j{' + 1' if half else ''}]"
            l.add(f"tt_mma_{w.shape}_{kind}({at}, {a}, b[{2 * half}], b[{2 * half + 1}]);")


def _row_of_four(o: Operand, ring: Ring) -> str:
    """C text of steps kk .. kk + 3 of a row of `slot_a`."""
    offset, row = offset_text(ring), "warp_m + 16 * i + 8 * h + lane / 4"
    if o.major == "k":
        return f"tt_load_shared_v4(a[i][h], slot_a + {offset}({row}, kk / 4));"
    at = f"{offset}(kk + q, (warp_m + 16 * i + 8 * h) / 4 + lane / 16) + lane / 4 % 4 * 4"
    return f"{STEPS} a[i][h][q] = tt_bits_to_f32(tt_load_shared_v1(slot_a + {at}));"


def _multiply_add(o: Operand, ring: Ring, to: str, columns: str, l: Lines) -> None:
    """C text that adds steps kk .. kk + 3 of all columns of `slot_b`, eight at a time, to `to`."""
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
