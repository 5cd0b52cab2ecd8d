"""Resources that a GPU plan needs, and reasons to refuse a plan, from the plan alone.

Shared memory: one slot of A and B is BM*BK + BK*BN elements (spec 5 §4.2). Registers per thread: accumulators BM*BN/threads,
the fragments of two steps (of four for `fma`), and addresses: some of them once, some for each step of BK
(`tests/cu/every_choice/every_plan.json` and `tests/cu/every_choice/legal_plans.jsonl` hold the numbers that ptxas uses). STOP
rules of spec 3 §11 hold for SM80 (80 % of shared memory, at least 2 CTAs per SM); SM90 has the hard limits only (D2.12).
"""

from __future__ import annotations

import re
from math import prod

import msgspec

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.ir import INST_K, GpuSync, Sm80Mma, Sm90Mma, Sm90Pair

MmaPlan = Sm80Mma | Sm90Mma
MAX_SPLIT = 32
"""Maximum number of parts into which k, or the keys of a pair, are split."""
MOST_REGISTERS = 255
"""Maximum number of registers per thread."""
SPILLED = 16
"""Additional address registers that may spill; user plans may use them, the planner never proposes it."""
KEPT = 24
"""Registers for addresses kept from one group of rows to the next."""
LEAST_REGISTERS = 24
"""Minimum registers per thread that setmaxnreg allows."""
PRODUCER_REGISTERS = {1: 40, 2: 40, 3: 32}
"""Minimum registers of a producer thread, which counts tiles and parts of k, by the number of consumers; with fewer ptxas
spills."""
STORED_REGISTERS = 24
"""Registers of a consumer thread for the addresses of results stored one by one; with fewer ptxas spills."""
SPARE, COPIED_SPARE = 24, 48
"""Registers of a consumer thread in addition to its estimate, and the same if the producer's threads copy, since ptxas hoists
computations; fewer where the register file has fewer left."""
ALONE_SPARE, MOST_ALONE = 24, 224
"""Additional spare registers of a single consumer, since ptxas starts such a kernel with 255 registers per thread; and the
most it gets, as in published kernels of pairs."""
COPIER_REGISTERS = 80
"""Minimum registers of a producer thread that copies, for the places that it copies from."""
INSTRUCTION_REGISTERS = 26
"""Registers one wgmma needs besides its accumulators; ptxas rejects kernels that start with fewer."""
STORED_ACCUMULATORS, FEWER_ACCUMULATORS = 128, 96
"""Maximum accumulators per thread of a warpgroup that stores results one by one; the fewer if it is the only consumer, or
keeps other values too. With more, ptxas spills or serialises wgmma (C7514)."""
MAX_CLUSTER = 8
"""Maximum number of CTAs per cluster: the portable size."""
MAX_EDGE_DEPTH = 4
"""Maximum depth of a local edge through shared memory."""
BARRIER_BYTES = 1024
"""Shared-memory bytes reserved before the rings for barriers and alignment."""


STORE_ROWS, STORE_SLOTS = 64, 2
"""Rows of a chunk of the accumulator stored by TMA, and chunks of a warpgroup in flight if no operand of the epilogue is
fetched; if one is, there is a slot for each chunk of a tile."""


def span_columns(extent: int) -> int:
    """Columns of a chunk or box: the widest swizzle span of 16-bit elements that divides the extent; 0 if none does."""
    return next((c for c in (64, 32, 16) if extent % c == 0), 0)


def tile_chunks(tile: tuple[int, ...], sharing: int) -> int:
    """Number of chunks of a tile for one of `sharing` warpgroups."""
    return tile[0] // sharing // STORE_ROWS * (tile[1] // max(1, span_columns(tile[1])))


def store_slots(plan: Sm90Mma) -> int:
    """Number of chunks of a warpgroup that are in shared memory at once."""
    sharing = 1 if plan.schedule == "pingpong" else plan.consumers
    return STORE_SLOTS if plan.epilogue_load == "direct" else tile_chunks(plan.tile, sharing)


class Needs(msgspec.Struct, frozen=True):
    """Resources of a CTA: shared memory in bytes, registers per thread; and CTAs that fit on an SM."""

    threads: int
    smem_bytes: int
    registers: int
    ctas_per_sm: int


def sides(text: str) -> tuple[int, int] | None:
    """Sides of a tile in text: ``"64x64"`` -> (64, 64); None if it is not one."""
    m = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text)
    return (int(m[1]), int(m[2])) if m else None


def instruction(text: str) -> tuple[int, int, int] | None:
    """Shape of an instruction in text: ``"m64n128k16"`` -> (64, 128, 16); None if it is not one."""
    m = re.fullmatch(r"m(\d{1,4})n(\d{1,4})k(\d{1,4})", text)
    return (int(m[1]), int(m[2]), int(m[3])) if m else None


def sm80_instruction(dtype: DType, tf32: bool) -> str:
    """The `inst_shape` of a plan that multiplies operands of `dtype` on SM80."""
    return "m16n8k16" if dtype.is_narrow_float else "m16n8k8" if tf32 else "fma"


def sm90_depth(dtype: DType) -> int:
    """Elements along k of one wgmma: 32 bytes."""
    return 32 // dtype.itemsize


def sm90_instruction(dtype: DType, bn: int) -> str:
    """The `inst_shape` of a plan that multiplies operands of `dtype` on SM90 (fp32: rounded to tf32)."""
    return f"m64n{bn}k{sm90_depth(dtype)}"


def edge_ring(plan: Sm80Mma) -> tuple[int, int, int]:
    """(slots, rows, bytes per row) of the ring through which accumulators reach the epilogue; no slots: they stay in
    registers. A slot has 16 rows per warp; a row has 16 bytes more than its data, so that rows begin in different banks."""
    depth = next((e.depth for e in plan.local_edges if e.buffer == "smem_ring"), 0)
    return depth, threads_of(plan) // 32 * 16, (sides(plan.warp_tile) or (64, 64))[1] * 4 + 16


def threads_of(plan: MmaPlan | GpuSync) -> int:
    """Number of threads per CTA."""
    match plan:
        case Sm80Mma():
            warp = sides(plan.warp_tile) or (64, 64)
            return 32 * max(1, plan.tile[0] // warp[0]) * max(1, plan.tile[1] // warp[1])
        case Sm90Mma():
            return 128 * (plan.consumers + 1)
        case GpuSync():
            return plan.block[0] * plan.block[1]


def smem_of(plan: MmaPlan | GpuSync, dtype: DType) -> int:
    """Bytes of shared memory per CTA."""
    bm, bn, bk = plan.tile
    match plan:
        case Sm80Mma():
            return plan.stages * (bm + bn) * bk * dtype.itemsize + prod(edge_ring(plan))
        case Sm90Mma():
            staged = store_slots(plan) * plan.consumers * STORE_ROWS * span_columns(bn) * 2
            ring = plan.stages * (bm + bn) * bk * dtype.itemsize
            return BARRIER_BYTES + ring + (staged if plan.epilogue_store == "stmatrix_tma" else 0)
        case GpuSync():
            first = -(-plan.stages * bm * (bk + 1) * dtype.itemsize // 16) * 16
            return first + plan.stages * bk * bn * dtype.itemsize


def accumulators_of(plan: Sm90Mma) -> int:
    """Registers of a consumer thread for its part of a tile."""
    return plan.tile[0] * plan.tile[1] // (128 * (1 if plan.schedule == "pingpong" else max(1, plan.consumers)))


def registers_of(plan: MmaPlan | GpuSync) -> int:
    """Estimated registers per thread, for warp roles per consumer thread."""
    bm, bn, _ = plan.tile
    match plan:
        case Sm80Mma():
            wm, wn = sides(plan.warp_tile) or (64, 64)
            kept = KEPT if "grouped_matmul" in plan.algo_choice else 0
            if plan.inst_shape == "fma":
                return wm * wn // 32 + (wm // 8 + wn // 4) * 4 + 40 + kept
            return wm * wn // 32 + (wm // 16 + wn // 16) * 8 + 34 + plan.tile[2] // 16 * 8 + kept
        case Sm90Mma():
            # With exchanged operands, neighbours in a thread's registers are rows apart: each has an address of 64 bits.
            return accumulators_of(plan) * (3 if plan.swap_ab else 1) + 40
        case GpuSync():
            mm, mn = bm // plan.block[0], bn // plan.block[1]
            return mm * mn + mm + mn + 32


def needs(plan: MmaPlan | GpuSync, dtype: DType, target: Target) -> Needs:
    """Resources of one CTA of the plan on the target."""
    threads, smem, registers = threads_of(plan), smem_of(plan, dtype), registers_of(plan)
    per_thread = 168 if isinstance(plan, Sm90Mma) and threads == 384 else min(registers, MOST_REGISTERS)
    return resident(target, threads, smem, registers, per_thread)


def resident(target: Target, threads: int, smem: int, registers: int, per_thread: int) -> Needs:
    """The resources, with the number of CTAs that an SM holds at once if each thread gets `per_thread` registers."""
    ctas = min(
        target.smem_per_sm // max(1, smem + 1024),
        target.registers_per_sm // max(1, -(-per_thread // 8) * 8 * threads),
        target.max_threads_per_sm // max(1, threads),
        target.max_blocks_per_sm,
    )
    return Needs(threads, smem, registers, ctas)


def stop_rules(plan: MmaPlan | GpuSync, dtype: DType, target: Target) -> list[str]:
    """Broken rules of thumb (spec 3 §11) that end the search at this candidate; an explicit plan may break them."""
    n = needs(plan, dtype, target)
    out = []
    if not isinstance(plan, Sm90Mma):
        if n.smem_bytes * 5 > target.smem_per_block * 4:
            out.append(f"shared memory {n.smem_bytes} B > 80 % of {target.smem_per_block} B")
        if n.ctas_per_sm < 2:
            out.append(
                f"{n.ctas_per_sm} CTA/SM < 2 ({n.registers} registers x {n.threads} threads, {n.smem_bytes} B shared memory)"
            )
    out += spills(plan, dtype, target)
    if isinstance(plan, Sm80Mma | Sm90Mma) and plan.vectorize.width * dtype.itemsize < 16:
        out.append(f"accesses of {plan.vectorize.width * dtype.itemsize} B < 16 B")
    if isinstance(plan, Sm90Mma) and "cp_async" in plan.loads:
        out.append(f"tile {'x'.join(map(str, plan.tile))} by cp.async, not by TMA alone")
    if isinstance(plan, Sm80Mma) and target.isa == "sm90" and dtype.is_narrow_float:
        out.append(f"tile {'x'.join(map(str, plan.tile))} by cp.async and mma.sync, not by TMA and wgmma")
    return out


def spills(plan: MmaPlan | GpuSync, dtype: DType, target: Target) -> list[str]:
    """The reason why a kernel spills registers, or nothing."""
    found = needs(plan, dtype, target).registers
    return [f"{found} registers per thread > {MOST_REGISTERS}: some spill"] if found > MOST_REGISTERS else []


def hard_limits(plan: MmaPlan | GpuSync, dtype: DType, target: Target) -> list[str]:
    """Resources that the target does not have, each with both numbers."""
    n = needs(plan, dtype, target)
    if not isinstance(plan, Sm90Mma):
        return limits(n, target)
    return [
        *limits(n, target, warps_share=True),
        *register_limits(plan, n.threads, role_registers(plan, target), plan.tile[1], target),
    ]


def role_registers(plan: Sm90Mma, target: Target) -> tuple[int, int]:
    """Minimum registers of a producer thread and of a consumer thread: the estimate, and spare ones if there are more."""
    copies = "cp_async" in plan.loads
    least = registers_of(plan) + (STORED_REGISTERS if plan.epilogue_store == "direct" else 0)
    spare = (COPIED_SPARE if copies else SPARE) + (ALONE_SPARE if plan.consumers == 1 else 0)
    producer = COPIER_REGISTERS if copies else PRODUCER_REGISTERS[plan.consumers]
    return producer, with_spare(plan, least, spare, threads_of(plan), target)


def with_spare(plan: Sm90Mma | Sm90Pair, least: int, spare: int, threads: int, target: Target) -> int:
    """Registers of a consumer thread: `least` and `spare` more, or as many as the producer leaves."""
    pool = target.registers_per_sm // threads // 8 * 8 * threads
    most = (pool // 128 - plan.registers[0]) // max(1, plan.consumers) // 8 * 8
    if plan.consumers == 1:
        most = MOST_ALONE if least <= MOST_ALONE else least + spare
    return max(least, min(least + spare, most))


def register_limits(plan: Sm90Mma | Sm90Pair, threads: int, fewest: tuple[int, int], columns: int, target: Target) -> list[str]:
    """Broken limits of warpgroups that hand registers to each other. `fewest`: minimum per producer and consumer thread;
    `columns`: of the widest wgmma."""
    out = []
    total = 128 * (plan.registers[0] + plan.consumers * plan.registers[1])
    first = target.registers_per_sm // threads // 8 * 8  # per thread at the start, the same for all
    if total > first * threads:
        out.append(f"setmaxnreg needs {total} registers > {first * threads} that {threads} threads start with")
    if (taken := columns // 2 + INSTRUCTION_REGISTERS) > first:
        out.append(f"wgmma of {columns} columns takes {taken} registers > {first} that each of {threads} threads starts with")
    for role, least, has in zip(("producer", "consumer"), fewest, plan.registers):
        if least > has:
            out.append(f"{least} registers per {role} thread > setmaxnreg {has}")
    return out


def limits(n: Needs, target: Target, warps_share: bool = False) -> list[str]:
    """Broken limits of a CTA. `warps_share`: warpgroups hand registers to each other, so that threads differ in their
    number."""
    out = []
    if n.smem_bytes > target.smem_per_block:
        out.append(f"shared memory {n.smem_bytes} B > {target.smem_per_block} B per CTA")
    if n.threads > 1024:
        out.append(f"{n.threads} threads > 1024 per CTA")
    if n.registers > MOST_REGISTERS + SPILLED:
        out.append(f"{n.registers} registers per thread > {MOST_REGISTERS} and {SPILLED} in memory")
    if not warps_share and n.registers * n.threads > target.registers_per_sm:
        out.append(f"{n.registers} registers x {n.threads} threads > {target.registers_per_sm} per SM")
    return out


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


def _sm80_rules(plan: Sm80Mma) -> list[str]:
    bm, bn, bk = plan.tile
    out = []
    warp = sides(plan.warp_tile)
    if warp is None:
        return [f"warp_tile {plan.warp_tile!r} is not of the form 64x64"]
    if 0 in warp:
        return [f"warp_tile {plan.warp_tile} has a side of 0"]
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


def algorithm_rules(choice: dict[str, str], kinds: tuple[str, ...], own: tuple[str, ...]) -> list[str]:
    """Broken rules of `algo_choice`: its keys are in `kinds`, and it names an algorithm of the template's `own` (`direct` has
    been replaced by another plan before)."""
    out = [f"algo_choice names {kind!r}; this plan is for {' or '.join(kinds)}" for kind in choice if kind not in kinds]
    wrong = {kind: algo for kind, algo in choice.items() if algo not in (*own, "direct")}
    said = "".join(f"{word}, " for word in own[1:] if word != "gemm")
    return out + [f"algo_choice.{kind} {algo!r}: {own[0]}, {said}direct are implemented" for kind, algo in wrong.items()]
