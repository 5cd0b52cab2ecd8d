"""Reasons to refuse a GPU plan of a product whose fields contradict each other, the instructions or the Region.

The resources that a plan needs, and their limits: `product_limits`.
"""

from __future__ import annotations

from tatami.plan.ir import INST_K, Async, GpuSync, Sm80Mma, Sm90Mma, Sm90Pair
from tatami.plan.views.product_limits import (
    FEWER_ACCUMULATORS,
    LEAST_REGISTERS,
    MAX_CLUSTER,
    MAX_EDGE_DEPTH,
    MAX_SPLIT,
    MOST_REGISTERS,
    STORED_ACCUMULATORS,
    MmaPlan,
    accumulators_of,
    instruction,
    sides,
    span_columns,
    synchronous_block,
)
from tatami.region.views.product import GemmView, why_not_plain


def shape_rules(plan: MmaPlan | GpuSync) -> list[str]:
    """Fields of a plan that contradict each other or the instructions, with the numbers."""
    bm, bn, _ = plan.tile
    out: list[str] = []
    if min(plan.tile) < 1:
        return [f"tile {list(plan.tile)} has a size below 1"]
    match plan:
        case Sm80Mma():
            out += _sm80_rules(plan)
        case Sm90Mma():
            out += _sm90_rules(plan)
        case GpuSync():
            if min(plan.block) < 1:
                out.append(f"block {plan.block[0]}x{plan.block[1]} has a side below 1")
            elif bm % plan.block[0] or bn % plan.block[1]:
                out.append(f"tile {bm}x{bn} is not a multiple of the block {plan.block[0]}x{plan.block[1]}")
            if not 1 <= plan.stages <= 8:
                out.append(f"stages {plan.stages} is outside 1..8")
    if isinstance(plan, Sm80Mma | Sm90Mma):
        if not 2 <= plan.stages <= 8:
            out.append(f"stages {plan.stages} is outside 2..8")
        if plan.async_.enable and not 1 <= plan.async_.prefetch_depth <= plan.stages:
            out.append(f"prefetch_depth {plan.async_.prefetch_depth} is outside 1..stages = {plan.stages}")
        if plan.vectorize.width not in (1, 2, 4, 8, 16):
            out.append(f"vectorize.width {plan.vectorize.width} is none of 1, 2, 4, 8, 16")
        if not 1 <= plan.split_k <= MAX_SPLIT:
            out.append(f"split_k {plan.split_k} is outside 1..{MAX_SPLIT}")
        streamed = isinstance(plan, Sm90Mma) and plan.persistent
        if plan.split_k > 1 and isinstance(plan, Sm90Mma) and streamed and "cp_async" in plan.loads:
            out.append(
                f"split_k {plan.split_k} with persistent tiles needs loads by tma, which end equal parts of k with zeros"
            )
        if plan.split_k > 1 and (not plan.async_.enable or (plan.async_.epilogue_overlap and not streamed)):
            out.append(f"split_k {plan.split_k} needs async.enable without epilogue_overlap: its kernel has no epilogue")
    return out


def group_rules(plan: MmaPlan | GpuSync) -> list[str]:
    """Reasons why a plan does not take rows in groups: a tile is then computed in parts that begin and end with a group."""
    if isinstance(plan, GpuSync):
        return ["gpu_sync does not take rows in groups"]
    crowded = crowded_rules(plan, "values kept from one group of rows to the next") if isinstance(plan, Sm90Mma) else []
    fields = {"split_k": plan.split_k > 1, "async.epilogue_overlap": plan.async_.epilogue_overlap}
    if isinstance(plan, Sm80Mma):
        fields["async.enable false"] = not plan.async_.enable
    else:
        fields |= {
            "persistent": plan.persistent,
            "epilogue_store stmatrix_tma": plan.epilogue_store == "stmatrix_tma",
            "swap_ab": plan.swap_ab,
            "loads cp_async": "cp_async" in plan.loads,
            "stream_k": plan.stream_k is not None,
        }
    why = "rows in groups are computed group by group, within a tile of one CTA"
    return [*(f"{field}: {why}" for field, on in fields.items() if on), *crowded]


MOST_REDUCED = 128
"""Maximum accumulators per thread that leave registers for reductions: with 192 ptxas spills."""


def block_rules(plan: MmaPlan | GpuSync) -> list[str]:
    """Reasons why a plan does not reduce rows or columns of its results in blocks: each has to be whole in one warp, as where
    warpgroups of the wgmma template divide tiles of the product's own rows and columns."""
    if not isinstance(plan, Sm90Mma):
        return [f"{type(plan).__name__} reduces no rows or columns of its results: use sm90_mma"]
    fields = {
        "split_k": plan.split_k > 1,
        "stream_k": plan.stream_k is not None,
        "swap_ab": plan.swap_ab,
        f"tile {plan.tile[0]}x{plan.tile[1]}": bool(plan.tile[0] % 64 or plan.tile[1] % 64),
    }
    out = [
        f"{field}: rows and columns are reduced in blocks of 64, which one warpgroup has whole"
        for field, on in fields.items()
        if on
    ]
    if (own := accumulators_of(plan)) > MOST_REDUCED:
        out.append(f"a thread with {own} accumulators has no registers for what it reduces: {MOST_REDUCED} at most")
    return out


def synchronous_rules(plan: Sm80Mma) -> list[str]:
    """Fields of a plan without asynchronous copies that say what the synchronous template does not do: threads copy and multiply
    one element at a time, in rows as they are, and a warp has some rows of threads."""
    rows, columns = synchronous_block(plan.tile)
    warp = f"{max(1, plan.tile[0] // rows * 32 // columns)}x{plan.tile[1]}"
    fields = {
        f"warp_tile {plan.warp_tile}: a warp of {rows}x{columns} threads computes {warp}": plan.warp_tile != warp,
        f"inst_shape {plan.inst_shape}: its instruction is fma": plan.inst_shape != "fma",
        f"vectorize.width {plan.vectorize.width}: it copies and stores single elements": plan.vectorize.width != 1,
        f"async.prefetch_depth {plan.async_.prefetch_depth}: nothing is copied ahead, leave it out": plan.async_
        != Async(False),
        f"tile_order {plan.tile_order}: its tiles lie in rows": plan.tile_order != "row",
    }
    hints = [
        f"layout_hints.{h} true: its rows lie as they are"
        for h in ("A_swizzle", "B_swizzle")
        if plan.layout_hints.get(h, False)
    ]
    return [
        f"{why} (async.enable false: the synchronous template)" for why in (*(w for w, bad in fields.items() if bad), *hints)
    ]


def _edge_rules(plan: Sm80Mma) -> list[str]:
    out = []
    for e in plan.local_edges:
        edge = f"local_edges {e.source} -> {e.target}"
        if e.buffer not in ("reg", "smem_ring"):
            out.append(f"{edge} by {e.buffer}: reg and smem_ring are implemented")
        elif e.buffer == "smem_ring" and not 1 <= e.depth <= MAX_EDGE_DEPTH:
            out.append(f"{edge} by smem_ring: depth {e.depth} is outside 1..{MAX_EDGE_DEPTH}")
        elif e.buffer == "smem_ring" and (plan.inst_shape == "fma" or not plan.async_.enable):
            out.append(f"{edge} by smem_ring: only fragments of mma are exchanged, a thread of this kernel has neighbours")
        elif e.buffer == "reg" and e.depth != 1:
            out.append(f"{edge} by reg: depth {e.depth}, registers hold one")
    return out


def _sm80_rules(plan: Sm80Mma) -> list[str]:
    out = _edge_rules(plan)
    if not plan.async_.enable:
        return [*synchronous_rules(plan), *out]
    bm, bn, bk = plan.tile
    warp = sides(plan.warp_tile)
    if warp is None:
        return [*out, f"warp_tile {plan.warp_tile!r} is not of the form 64x64"]
    if 0 in warp:
        return [*out, f"warp_tile {plan.warp_tile} has a side of 0"]
    if bm % warp[0] or bn % warp[1]:
        out.append(f"tile {bm}x{bn} is not a multiple of warp_tile {plan.warp_tile}")
    match plan.inst_shape:
        case "m16n8k16" | "m16n8k8" as shape:
            if warp[0] % 16 or warp[1] % 16:
                out.append(f"warp_tile {plan.warp_tile} is not a multiple of 16x16, which one ldmatrix.x4 covers")
            depths = [n * INST_K[shape] for n in (1, 2, 4, 8)]
            if bk not in depths:
                out.append(f"BK = {bk} is none of {', '.join(map(str, depths))}")
        case "fma":
            if warp[0] % 32 or warp[1] % 16:
                out.append(f"warp_tile {plan.warp_tile} is not a multiple of 32x16: 8x4 lanes with 4x4 elements each")
            if bk not in (8, 16, 32):
                out.append(f"BK = {bk} is none of 8, 16, 32")
        case _:
            out.append(
                f"inst_shape {plan.inst_shape} does not exist on sm80: m16n8k16 for fp16 and bf16, m16n8k8 for tf32, fma for fp32"
            )
    if any(x & (x - 1) for x in (bm, bn)) and (bm % 64 or bn % 64):
        out.append(f"tile {bm}x{bn}: each side is a power of two or a multiple of 64")
    return out


def _sm90_rules(plan: Sm90Mma) -> list[str]:
    bm, bn, bk = plan.tile
    out = []
    shape = instruction(plan.inst_shape)
    if shape is None or shape[0] != 64 or shape[2] not in (8, 16, 32) or shape[1] % 8 or not 8 <= shape[1] <= 256:
        out.append(
            f"inst_shape {plan.inst_shape} is not a wgmma shape: m64, n a multiple of 8 up to 256, k16, k8 for tf32, k32 for fp8"
        )
    elif shape[1] != bn:
        out.append(f"inst_shape n = {shape[1]} differs from BN = {bn}")
    elif plan.k_steps * shape[2] != bk:
        out.append(f"k_steps {plan.k_steps} x {shape[2]} differs from BK = {bk}")
    if plan.k_steps not in (2, 4):
        out.append(f"BK = {bk}: a swizzled row of 64 or 128 bytes is 2 or 4 steps of the instruction, not {plan.k_steps}")
    sharing = 1 if plan.schedule == "pingpong" else plan.consumers
    if plan.consumers not in (1, 2, 3) or bm % (64 * sharing):
        out.append(f"BM = {bm} is not a multiple of 64 x {sharing} consumer warpgroups (1..3) that share it")
    if bm > 256 or bn > 256:
        out.append(f"tile {bm}x{bn}: a TMA box has at most 256 rows")
    out += [*register_rules(plan), *_cluster_rules(plan), *crowded_rules(plan)]
    if plan.schedule == "pingpong" and (plan.consumers != 2 or not plan.persistent or not plan.async_.epilogue_overlap):
        out.append(
            f"schedule pingpong: 2 consumers that take persistent tiles in turns, with epilogue_overlap, not {plan.consumers}"
        )
    if plan.epilogue_store == "stmatrix_tma" and not span_columns(bn):
        out.append(f"epilogue_store stmatrix_tma: BN = {bn} is not a multiple of 16, the columns of one stmatrix")
    if plan.epilogue_load == "tma" and plan.epilogue_store != "stmatrix_tma":
        out.append(
            f"epilogue_load tma: fetched operands share the shared memory of results, and epilogue_store {plan.epilogue_store} has none"
        )
    if plan.swap_ab and plan.epilogue_store == "direct" and plan.cluster != (1, 1):
        why = "exchanged results that are stored one by one have addresses for which ptxas serialises wgmma (C7514)"
        out.append(f"swap_ab in a cluster of {plan.cluster[0]}x{plan.cluster[1]}: {why}")
    if not plan.async_.enable:
        out.append("async.enable false: copies of sm90 are asynchronous")
    if plan.async_.prefetch_depth != plan.stages:
        out.append(f"async.prefetch_depth {plan.async_.prefetch_depth}: the producer of sm90 fills all {plan.stages} stages")
    if plan.wait_depth not in (0, 1):
        out.append(f"wait_depth {plan.wait_depth} is neither 0 nor 1")
    return out + _stream_k_rules(plan)


def _stream_k_rules(plan: Sm90Mma) -> list[str]:
    s = plan.stream_k
    if s is None:
        return []
    fields = {
        "persistent false": not plan.persistent,
        f"split_k {plan.split_k}": plan.split_k > 1,
        "schedule pingpong": plan.schedule == "pingpong",
        "swap_ab": plan.swap_ab,
        "loads cp_async": "cp_async" in plan.loads,
    }
    out = [
        f"stream_k with {f}: persistent CTAs of one schedule walk through pieces that TMA brings"
        for f, on in fields.items()
        if on
    ]
    if min(s.rows, s.units) < 1:
        out.append(f"stream_k of {s.rows} rows over {s.units} units: both are at least 1")
    return out


def register_rules(plan: Sm90Mma | Sm90Pair) -> list[str]:
    """Broken rules of `registers` alone."""
    least, most = LEAST_REGISTERS, MOST_REGISTERS + 1
    out = [
        f"setmaxnreg {r} is not a multiple of 8 in {least}..{most}" for r in plan.registers if r % 8 or not least <= r <= most
    ]
    if plan.registers[0] > plan.registers[1]:
        out.append(f"setmaxnreg {plan.registers[0]} of the producer > {plan.registers[1]} of a consumer")
    return out


def crowded_rules(plan: Sm90Mma, besides: str = "", stored: bool = True) -> list[str]:
    """The reason why a warpgroup has no registers for its accumulators, the addresses of exchanged ones, and the values kept
    `besides`; or nothing. `stored`: the rule holds only if results are stored one by one."""
    fewer = besides or (stored and plan.consumers == 1)
    most, has = FEWER_ACCUMULATORS if fewer else STORED_ACCUMULATORS, accumulators_of(plan) * (3 if plan.swap_ab else 1)
    if has <= most or (stored and plan.epilogue_store != "direct"):
        return []
    of = "accumulators and their addresses" if plan.swap_ab else "accumulators"
    how = " that stores results one by one" if stored else ""
    return [f"{has} {of} of a warpgroup{how} > {most} that it has registers for{' besides ' if besides else ''}{besides}"]


def _cluster_rules(plan: Sm90Mma) -> list[str]:
    cm, cn = plan.cluster
    out = []
    if min(cm, cn) < 1 or cm * cn > MAX_CLUSTER:
        return [f"cluster {cm}x{cn} is outside 1..{MAX_CLUSTER} CTAs, the portable size"]
    if cm * cn > 1 and not plan.persistent:
        out.append(f"cluster {cm}x{cn} needs persistent tiles: all its CTAs do the same number of them")
    if min(cm, cn) > 1:
        out += crowded_rules(plan, f"its places along both sides of the cluster {cm}x{cn}")
    for operand, axis, count in (("a", "n", cn), ("b", "m", cm)):
        if plan.multicast in (operand, "both") and count == 1:
            out.append(f"multicast {plan.multicast}: {operand} is shared along {axis}, where the cluster {cm}x{cn} has one CTA")
    for operand, loader in zip("ab", plan.loads):
        if loader == "cp_async" and plan.multicast in (operand, "both"):
            out.append(f"multicast {plan.multicast}: {operand} comes by cp.async, which reaches its own CTA only")
    return out


def product_kind(view: GemmView) -> str:
    """Kind of the product for `algo_choice`: its operands are matrices, with rows in groups or not, or windows of an image."""
    if view.groups is not None:
        return "grouped_matmul"
    is_window = why_not_plain(view.lhs, view.m, view.k) or why_not_plain(view.rhs, view.n, view.k)
    return "conv" if is_window else "matmul"


PRODUCT_ALGORITHMS = ("implicit_gemm", "gemm")
"""Words of `algo_choice` for the templates of a product, which are one algorithm."""


def algorithm_rules(choice: dict[str, str], kind: str, own: tuple[str, ...]) -> list[str]:
    """Broken rules of `algo_choice`: its only key is the `kind` of the Region's product, and it names an algorithm of the
    template's `own`, or `direct`."""
    out = [f"algo_choice names {word!r}; the key for this Region is {kind}" for word in choice if word != kind]
    wrong = {word: algo for word, algo in choice.items() if algo not in (*own, "direct")}
    said = "".join(f"{word}, " for word in own[1:] if word != "gemm")
    return out + [f"algo_choice.{word} {algo!r}: {own[0]}, {said}direct are implemented" for word, algo in wrong.items()]
