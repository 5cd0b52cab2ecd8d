"""The statements of a warpgroup and its producer on SM90: boxes by TMA, wgmma on descriptors, chunks of the result back by
TMA."""

from __future__ import annotations

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import var
from tatami.cu.expr_text import SHORT, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.cu.products.epilogue import fragment_pair
from tatami.cu.products.mma import offset_text
from tatami.cu.products.ring import slot_pitch
from tatami.cu.products.wgmma import KIND, OPERAND
from tatami.gpu.ir import Kernel, Ring
from tatami.gpu.statement_ir import Epilogue, StMatrix, TmaFetch, TmaLoad, TmaStore, Wgmma

FEW_BOXES = 4
"""Maximum number of boxes of a slot whose loads are unrolled."""


def tma_load_text(k: Kernel, s: TmaLoad, ring: Ring, slot: str, barrier: str, l: Lines) -> None:
    """Print the loads of a slot. Each CTA loads its part of a shared operand: rows of its one box, or some of its boxes, to
    the same place in all CTAs."""
    first = "(int)k_first + " if k.split > 1 or k.weights is not None else ""
    if s.offsets:
        with l.block():
            l.add(
                f"const int pixel = (int){'m0' if s.dst_smem == k.a.ring else 'n0'}, element = {first}({index_text(s.block)}) * BK;"
            )
            place = {"m": var("pixel"), "n": var("pixel"), "k": var("element")}
            walk = [f"(int)({index_text(substitute(c, place))})" for c in s.coords]
            walk += [f"(tt_u16)({index_text(substitute(c, place))})" for c in s.offsets]
            l.add(f"tt_tma_load_im2col_4d({slot}, &{s.desc}, {', '.join(walk)}, {barrier});")
        return
    at = {"k": f"{first}({index_text(s.block)}) * BK", "m": "(int)m0", "n": "(int)n0", "d": "0"}
    names = {axis for c in s.coords for axis in free_vars(c)} - {c.as_name() for c in s.coords}
    if moved := sorted(names & at.keys()):  # coordinates derived from the block's
        with l.block():
            l.add(f"const int {', '.join(f'at_{axis} = {at[axis]}' for axis in moved)};")
            place = {axis: var(f"at_{axis}") for axis in moved}
            whole = [at.get(index_text(c)) or f"(int)({index_text(substitute(c, place))})" for c in s.coords]
            _boxes_text(k, s, ring, slot, barrier, whole, l)
        return
    coords = [at.get(index_text(c), f"(int){factor_text(c)}") for c in s.coords]
    _boxes_text(k, s, ring, slot, barrier, coords, l)


def _boxes_text(k: Kernel, s: TmaLoad, ring: Ring, slot: str, barrier: str, coords: list[str], l: Lines) -> None:
    call, to, boxes = f"tt_tma_load_{len(coords)}d", "", s.boxes
    parts, rank = {"": (1, ""), "m": (k.cluster[0], "rank_m"), "n": (k.cluster[1], "rank_n")}[s.share]
    if s.share:
        call += "_multicast"
        cm, cn = k.cluster
        column = sum(1 << i * cn for i in range(cm))
        to = f", (tt_u16)({column} << rank_n)" if s.share == "m" else f", (tt_u16)({(1 << cn) - 1} << rank_m * CLUSTER_N)"
    if s.boxes == 1:
        if s.share:
            slot += f" + {rank} * {ring.slot_bytes // parts}"
            coords[1] += f" + {rank} * {ring.rows // parts}"
        l.add(f"{call}({slot}, &{s.desc}, {', '.join(coords)}, {barrier}{to});")
        return
    boxes //= parts
    coords[0] += f" + {ring.row_bytes // 2} * box"
    start = f"{rank} * {boxes}" if s.share else "0"
    stop = f"({rank} + 1) * {boxes}" if s.share else str(boxes)
    rolled = "TT_ROLLED " if boxes > FEW_BOXES else ""  # each unrolled one takes registers of the producer, which has few
    l.add(f"{rolled}for (int box = {start}; box < {stop}; ++box)")
    l.add(f"  {call}({slot} + box * {ring.slot_bytes // s.boxes}, &{s.desc}, {', '.join(coords)}, {barrier}{to});")


def sharing_test(k: Kernel, share: str) -> str:
    """C test that CTA number `lane` of the cluster loads parts for this one (`gpu.cluster.sharing`)."""
    beside = [t for axis, t in (("n", "lane / CLUSTER_N == rank_m"), ("m", "lane % CLUSTER_N == rank_n")) if axis in share]
    return f"lane < CTAS && ({' || '.join(beside)})"


def hold_text(s: Wgmma, l: Lines) -> None:
    """Print the line that keeps a product's registers unmoved while it is in flight."""
    l.add(f"TT_UNROLL for (int i = 0; i < ROWS / 64; ++i) tt_wgmma_hold({s.acc}[i]);")
    if not s.a_smem:
        steps = f"TT_UNROLL for (int kk = 0; kk < {s.k_steps}; ++kk)"
        l.add(f"TT_UNROLL for (int i = 0; i < ROWS / 64; ++i) {steps} tt_wgmma_hold(p[i][kk]);")


def wgmma_text(k: Kernel, s: Wgmma, rings: tuple[tuple[Ring, str] | None, tuple[Ring, str]], l: Lines) -> None:
    """Print the steps of one block, one committed group. `rings`: (ring, slot) of the operands in shared memory. `group` is
    the warpgroup's part of the tile."""
    kind, width = OPERAND[KIND[k.b.dtype]], "BN" if s.acc == "acc" else "BK"
    a, b = rings
    with l.block():
        l.add(f"const tt_u32 {f'slot_a = {a[1]}, ' if a else ''}slot_b = {b[1]};")
        hold_text(s, l)
        l.add("tt_wgmma_fence();")
        l.add(f"TT_UNROLL for (int kk = 0; kk < {s.k_steps}; ++kk)")
        with l.block("TT_UNROLL for (int i = 0; i < ROWS / 64; ++i)"):
            if a is not None:
                turned = f"m64k16<{kind}, {width}, {int(s.trans_a)}, {int(s.trans_b)}>"
                form = turned if k.b.dtype in SHORT else f"m64<{kind}, {width}>"
                l.add(f"tt_wgmma_{form}::run({s.acc}[i],")
                l.add(f"    {_descriptor('slot_a', a[0], s.trans_a, s.k_steps, '(group * (ROWS / 64) + i)')},")
            else:
                l.add(f"tt_wgmma_m64k16_rs<{kind}, {width}, {int(s.trans_b)}>::run({s.acc}[i], p[i][kk],")
            l.add(f"    {_descriptor('slot_b', b[0], s.trans_b, s.k_steps)}, {'kk > 0' if s.fresh else '1'});")
        l.add("tt_wgmma_commit();")
        hold_text(s, l)


def _descriptor(slot: str, ring: Ring, trans: bool, steps: int, part: str = "") -> str:
    """C text of the descriptor of step kk, 64 rows as part number `part` of the tile: boxes as wide as the swizzle next to
    each other, along the rows if the operand is transposed, else along k."""
    span = ring.row_bytes
    if trans:
        box = 16 * steps * span
        at = f"{slot}{f' + {part} * {128 // span * box}' if part else ''} + kk * {16 * span}"
        return f"tt_wgmma_descriptor({at}, {box}, {8 * span}, {ring.swizzle})"
    each = span // 32  # steps in a box
    at = f"{slot}{f' + {part} * {64 * span}' if part else ''} + "
    if steps > each:
        at += f"kk / {each} * {ring.slot_bytes * each // steps} + kk % {each} * 32"
    else:
        at += "kk * 32"
    return f"tt_wgmma_descriptor({at}, 16, {8 * span}, {ring.swizzle})"


# -- chunks of the result --------------------------------------------------------------------------
# i counts 64 rows of the warpgroup's part, c chunks of columns, `stored` all chunks so far; `own` is the warpgroup.


def chunk_head(k: Kernel, ring: Ring) -> tuple[str, str]:
    """C loops over the chunks: (over 64 rows, over columns)."""
    return (
        "TT_UNROLL for (int i = 0; i < ROWS / 64; ++i)",
        f"TT_UNROLL for (int c = 0; c < {k.tile[1] // chunk_columns(ring)}; ++c)",
    )


def is_turned(s: TmaStore) -> bool:
    """True if the chunk's memory is contiguous along m."""
    return index_text(s.coords[0]) == "m"


def chunk_columns(ring: Ring) -> int:
    """Number of columns of a chunk."""
    return ring.slot_bytes // 128


def _slot(k: Kernel, ring: Ring) -> str:
    each = ring.slots // own_count(k)
    return f"{ring.name} + (own * {each} + stored % {each}) * {slot_pitch(k, ring)}"


def own_count(k: Kernel) -> int:
    """Number of consumer warpgroups."""
    return k.threads // 128 - 1


def stmatrix_text(k: Kernel, s: StMatrix, e: Epilogue, ring: Ring, turned: bool, l: Lines) -> None:
    """Print the stores of a warp's 16 rows of the chunk: 16 columns at a time, as two 8x8 matrices of its upper rows and two
    of its lower."""
    columns = chunk_columns(ring)
    d = next(p.dtype for p in k.params if p.name == s.ptr)
    row, chunk = "16 * (warp % 4) + lane % 16", "2 * q + lane / 16"
    if turned:
        row, chunk = "16 * q + lane / 16 * 8 + lane % 8", "2 * (warp % 4) + lane / 8 % 2"
    place, trans = f"{_slot(k, ring)} + {offset_text(ring)}({row}, {chunk})", "_trans" if turned else ""
    with l.block(f"TT_UNROLL for (int q = 0; q < {columns // 16}; ++q)"):
        l.add("tt_u32 packed[4];")
        if s.fetched:
            l.add("tt_u32 fetched[4];", f"tt_ldmatrix_x4{trans}(fetched, {place});")
        with l.block("TT_UNROLL for (int e4 = 0; e4 < 4; ++e4)"):
            l.add("const int h = e4 % 2, j = " + f"{columns // 8} * c + 2 * q + e4 / 2;")
            l.add("const tt_i64 m = m0 + group * ROWS + 64 * i + 16 * (warp % 4) + 8 * h + lane / 4;")
            fragment_pair(k, e, (s,), l, "j", "n0", lambda i, j, e_: f"acc[{i}][4 * {j} + 2 * h + {e_}]")
            l.add(f"packed[e4] = tt_pack_{SHORT[d]}(y0[0], y0[1]);")
        if s.fetched:
            l.add("tt_sync_warp();  // all lanes have what lay there")
        l.add(f"tt_stmatrix_x4{trans}({place}, packed);")


def _chunk_coords(s: TmaStore | TmaFetch, ring: Ring) -> list[str]:
    at = {"m": "(int)m0 + group * ROWS + 64 * i", "n": f"(int)n0 + {chunk_columns(ring)} * c"}
    return [at.get(index_text(x), f"(int){factor_text(x)}") for x in s.coords]


def tma_fetch_text(k: Kernel, s: TmaFetch, ring: Ring, l: Lines) -> None:
    """Print the load of chunk c of rows i into the slot in which `stored` puts its results: a tile has as many chunks as there
    are slots."""
    rows, columns = chunk_head(k, ring)
    coords = _chunk_coords(s, ring)
    chunk = f"own * {s.chunks} + i * {k.tile[1] // chunk_columns(ring)} + c"
    with l.block("if (tid % 128 == 0)"):
        l.add(f"tt_mbarrier_arrive_expect_tx({s.mbarrier} + 8 * own, {s.bytes});", rows, columns)
        slot = f"{ring.name} + ({chunk}) * {slot_pitch(k, ring)}"
        l.add(f"  tt_tma_load_{len(coords)}d({slot}, &{s.desc}, {', '.join(coords)}, {s.mbarrier} + 8 * own);")


def tma_store_text(k: Kernel, s: TmaStore, ring: Ring, l: Lines) -> None:
    """Print the store of a chunk by one thread."""
    coords = _chunk_coords(s, ring)
    with l.block("if (tid % 128 == 0)"):
        l.add(f"tt_tma_store_{len(coords)}d(&{s.desc}, {', '.join(coords)}, {_slot(k, ring)});")
        l.add("tt_bulk_commit();")
    l.add("++stored;")
