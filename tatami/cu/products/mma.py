"""The math of one block of a ring: fragments to registers, then tensor cores (`mma`) or multiply-adds (`fma`).

The operands of the next step are read before the math of this one: two buffers of registers hide the latency of shared memory.

The `fma` template: lane (lane / 4, lane % 4) of a warp owns rows 4*(lane / 4) + 32*g .. + 3 and columns 4*(lane % 4) +
16*g .. + 3 of the warp's tile, so that a read of shared memory is 16 bytes whichever axis is contiguous (8 along k, where
the other operand lies along m or n).
"""

from __future__ import annotations

from tatami.cu.expr_text import SHORT
from tatami.cu.lines import Lines
from tatami.gpu.ir import Kernel, Operand, Ring
from tatami.plan.ir import INST_K

WORDS = "TT_UNROLL for (int r = 0; r < 4; ++r)"
"""C loop over the words of a fragment."""


def warp_tile_lines(k: Kernel) -> list[str]:
    """Constants of a warp's part of the tile and its accumulators."""
    wm, wn = k.tile[0] // k.rows, k.tile[1] // k.cols
    lines = [
        f"constexpr int WM = {wm}, WN = {wn};",
        f"const int warp_m = warp / {k.cols} * WM, warp_n = warp % {k.cols} * WN;",
    ]
    if k.template in ("mma", "pair"):
        return [*lines, "float acc[WM / 16][WN / 8][4];"]
    return [
        *lines,
        "constexpr int TM = WM / 8, TN = WN / 4;  // of one thread",
        "const int lane_m = warp_m + lane / 4 * 4, lane_n = warp_n + lane % 4 * 4;",
        "float acc[TM][TN];",
    ]


def offset_text(ring: Ring) -> str:
    """The function from (row, 16-byte chunk) to the byte offset in a slot."""
    shared = f", {ring.swizzle_rows}" if ring.swizzle_rows or ring.swizzle_step > 1 else ""
    shared += f", {ring.swizzle_step}" if ring.swizzle_step > 1 else ""
    return f"tt_tile_offset<{ring.row_bytes}, {ring.swizzle}{shared}>"


def read_a(o: Operand, ring: Ring, to: str) -> str:
    """C text that reads rows warp_m + 16*i .. and step kk of `slot_a`, as the A fragment of m16n8k16, or of m16n8k8 for
    elements of 4 bytes: two chunks of 16 bytes of a row are a step of either. ldmatrix transposes 16-bit elements only."""
    offset = offset_text(ring)
    if o.major == "mn" and o.dtype.itemsize == 4:
        at = f"{offset}(8 * kk + lane % 4 + r / 2 * 4, warp_m / 4 + 4 * i + lane / 16 + r % 2 * 2)"
        return f"{WORDS} {to}[r] = tt_load_shared_v1(slot_a + {at} + lane / 4 % 4 * 4);"
    if o.major == "k":
        return f"tt_ldmatrix_x4({to}, slot_a + {offset}(warp_m + 16 * i + lane % 16, 2 * kk + lane / 16));"
    row = "16 * kk + lane % 8 + lane / 16 * 8"
    return f"tt_ldmatrix_x4_trans({to}, slot_a + {offset}({row}, warp_m / 8 + 2 * i + lane / 8 % 2));"


def read_b(o: Operand, ring: Ring, to: str, first: str = "") -> str:
    """C text that reads columns ``first 16*j`` .. and step kk of `slot_b`, as two B fragments."""
    offset = offset_text(ring)
    if o.major == "mn" and o.dtype.itemsize == 4:
        at = f"{offset}(8 * kk + lane % 4 + r % 2 * 4, {first.replace(' +', ' / 4 +')}4 * j + lane / 16 + r / 2 * 2)"
        return f"{WORDS} {to}[r] = tt_load_shared_v1(slot_b + {at} + lane / 4 % 4 * 4);"
    if o.major == "k":
        row = f"{first}16 * j + lane % 8 + lane / 16 * 8"
        return f"tt_ldmatrix_x4({to}, slot_b + {offset}({row}, 2 * kk + lane / 8 % 2));"
    chunk = f"{first.replace(' +', ' / 8 +')}2 * j + lane / 16"
    return f"tt_ldmatrix_x4_trans({to}, slot_b + {offset}(16 * kk + lane % 16, {chunk}));"


def mma_text(k: Kernel, shape: str, ring_a: Ring, ring_b: Ring, slot_a: str, slot_b: str, l: Lines) -> None:
    """Print reads by ldmatrix and products by mma of `shape`; fp32 is rounded to tf32 between the two."""
    kind, steps = SHORT.get(k.a.dtype, "tf32"), f"BK / {INST_K[shape]}"
    with l.block():
        l.add(f"const tt_u32 slot_a = {slot_a}, slot_b = {slot_b};")
        l.add("tt_u32 a[2][WM / 16][4], b[2][WN / 16][4];")
        with l.block("auto read = [&](int kk, tt_u32 (&to_a)[WM / 16][4], tt_u32 (&to_b)[WN / 16][4])", "};"):
            l.add("TT_UNROLL for (int i = 0; i < WM / 16; ++i)")
            l.add(f"  {read_a(k.a, ring_a, 'to_a[i]')}")
            l.add("TT_UNROLL for (int j = 0; j < WN / 16; ++j)")
            l.add(f"  {read_b(k.b, ring_b, 'to_b[j]', 'warp_n + ')}")
            if kind == "tf32":
                l.add("TT_UNROLL for (int i = 0; i < WM / 16; ++i) tt_round_words(to_a[i]);")
                l.add("TT_UNROLL for (int j = 0; j < WN / 16; ++j) tt_round_words(to_b[j]);")
        l.add("read(0, a[0], b[0]);")
        with l.block(f"TT_UNROLL for (int kk = 0; kk < {steps}; ++kk)"):
            l.add(f"if (kk + 1 < {steps}) read(kk + 1, a[(kk + 1) % 2], b[(kk + 1) % 2]);")
            l.add("TT_UNROLL for (int i = 0; i < WM / 16; ++i)")
            with l.block("TT_UNROLL for (int j = 0; j < WN / 16; ++j)"):
                for half in (0, 1):
                    regs = f"a[kk % 2][i], b[kk % 2][j][{2 * half}], b[kk % 2][j][{2 * half + 1}]"
                    l.add(f"tt_mma_{shape}_{kind}(acc[i][2 * j{' + 1' if half else ''}], {regs});")


def ring_fma_text(k: Kernel, ring_a: Ring, ring_b: Ring, slot_a: str, slot_b: str, l: Lines) -> None:
    """Print multiply-adds of TM x TN, PART steps of k at a time; the operands of the next ones are read between them."""
    along_k = (k.a.major, k.b.major).count("k")
    with l.block():
        l.add(f"const tt_u32 slot_a = {slot_a}, slot_b = {slot_b};", f"constexpr int PART = {max(1, 2 * along_k)};")
        (_fma_rows if along_k == 2 else _fma_parts)(k, ring_a, ring_b, l)


def _fma_parts(k: Kernel, ring_a: Ring, ring_b: Ring, l: Lines) -> None:
    """Keep two parts of both operands, read by 8 bytes along k and by 16 otherwise."""
    l.add("float a[2][PART][TM], b[2][PART][TN];")
    with l.block("auto read = [&](int kk, float (&to_a)[PART][TM], float (&to_b)[PART][TN])", "};"):
        _read_part(k.a, ring_a, "a", "TM", "lane_m", 32, l)
        _read_part(k.b, ring_b, "b", "TN", "lane_n", 16, l)
    l.add("read(0, a[0], b[0]);")
    with l.block("TT_ROLLED for (int kk = 0; kk < BK; kk += 2 * PART) TT_UNROLL for (int now = 0; now < 2; ++now)"):
        l.add("read((kk + (now + 1) * PART) % BK, a[1 - now], b[1 - now]);  // the last one is not used")
        l.add("TT_UNROLL for (int q = 0; q < PART; ++q)", "  TT_UNROLL for (int i = 0; i < TM; ++i)")
        l.add("    TT_UNROLL for (int j = 0; j < TN; ++j) acc[i][j] = tt_fma(a[now][q][i], b[now][q][j], acc[i][j]);")


def _fma_rows(k: Kernel, ring_a: Ring, ring_b: Ring, l: Lines) -> None:
    """Both operands along k: a read of 16 bytes is four steps of one row. Rows of A in order, the next one read before; the
    last row is the last use of each column of B, whose next part takes its registers. Two parts of B would take as many
    registers again."""
    l.add("float a[2][PART], b[TN][PART];")
    for name, ring, first, stride in (("a", ring_a, "lane_m", 32), ("b", ring_b, "lane_n", 16)):
        at = f"slot_{name} + {offset_text(ring)}({first} + i % 4 + i / 4 * {stride}, kk / 4)"
        l.add(f"auto read_{name} = [&](int kk, int i, float (&to)[PART]) {{ tt_load_shared_v4(to, {at}); }};")
    l.add("read_a(0, 0, a[0]);", "TT_UNROLL for (int j = 0; j < TN; ++j) read_b(0, j, b[j]);")
    with l.block("TT_ROLLED for (int kk = 0; kk < BK; kk += PART) TT_UNROLL for (int i = 0; i < TM; ++i)"):
        l.add("const int next = (kk + PART) % BK;  // after the last part the first again, which is not used")
        l.add("read_a(i + 1 < TM ? kk : next, (i + 1) % TM, a[(i + 1) % 2]);")
        with l.block("TT_UNROLL for (int j = 0; j < TN; ++j)"):
            l.add("TT_UNROLL for (int q = 0; q < PART; ++q) acc[i][j] = tt_fma(a[i % 2][q], b[j][q], acc[i][j]);")
            l.add("if (i + 1 == TM) read_b(next, j, b[j]);")


def _read_part(o: Operand, ring: Ring, name: str, count: str, first: str, stride: int, l: Lines) -> None:
    """to_name[q][i]: element (row i of the thread, step kk + q)."""
    to, at = f"to_{name}", f"slot_{name} + {offset_text(ring)}"
    if o.major == "k":
        row = f"{first} + i % 4 + i / 4 * {stride}"
        l.add(f"TT_UNROLL for (int i = 0; i < {count}; ++i)")
        l.add(f"  tt_load_shared_v2({to}[0][i], {to}[1][i], {at}({row}, kk / 4) + kk % 4 * 4);")
    else:
        with l.block(f"TT_UNROLL for (int q = 0; q < PART; ++q) TT_UNROLL for (int g = 0; g < {count} / 4; ++g)"):
            l.add("float r[4];", f"tt_load_shared_v4(r, {at}(kk + q, {first} / 4 + g * {stride // 4}));")
            l.add(f"TT_UNROLL for (int e = 0; e < 4; ++e) {to}[q][4 * g + e] = r[e];")
