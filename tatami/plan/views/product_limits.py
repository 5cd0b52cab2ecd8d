"""Resources that a GPU plan needs, and reasons to refuse a plan, from the plan alone.

Shared memory: one slot of A and B is BM*BK + BK*BN elements (spec 5 §4.2). Registers per thread: accumulators BM*BN/threads,
the fragments of two steps (of four for `fma`), and addresses: some of them once, some for each step of BK
(`tests/cu/every_choice/every_plan.json` and `tests/cu/every_choice/legal_plans.jsonl` hold the numbers that ptxas uses). STOP
rules of spec 3 §11 hold for SM80 (80 % of shared memory, at least 2 CTAs per SM); SM90 has the hard limits only (D2.12).
"""

from __future__ import annotations

import re
from math import prod
from typing import assert_never

import msgspec

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.ir import GpuSync, Sm80Mma, Sm90Mma, Sm90Pair

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


def neighbours_of(plan: MmaPlan) -> tuple[int, bool]:
    """(neighbouring results of a row that a thread holds, True if four lanes exchange theirs for eight of 16 bits). A thread of
    multiply-adds, or one that takes results from a ring, has four, one of tensor cores two."""
    match plan:
        case Sm80Mma():
            slots, columns = edge_ring(plan)[0], (sides(plan.warp_tile) or (64, 64))[1]
            return (4, slots > 0) if plan.inst_shape == "fma" or slots else (2, columns % 32 == 0)
        case Sm90Mma():
            return 2, plan.tile[1] % 32 == 0
        case _:
            assert_never(plan)


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


def synchronous_block(tile: tuple[int, int, int]) -> tuple[int, int]:
    """Rows and columns of threads of the synchronous kernel that an `sm80_mma` plan without asynchronous copies asks for."""
    return min(16, tile[0]), min(16, tile[1])


def registers_of(plan: MmaPlan | GpuSync) -> int:
    """Estimated registers per thread, for warp roles per consumer thread."""
    bm, bn, _ = plan.tile
    match plan:
        case Sm80Mma() if not plan.async_.enable:
            rows, columns = synchronous_block(plan.tile)
            return bm // rows * (bn // columns) + bm // rows + bn // columns + 32
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
