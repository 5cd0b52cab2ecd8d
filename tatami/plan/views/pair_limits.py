"""Resources that a plan for two products in one kernel needs, and reasons to refuse one."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.ops import OPS
from tatami.core.target import Target
from tatami.plan.ir import TWO_PASS, Sm80Pair, Sm90Pair
from tatami.plan.views.product_limits import (
    BARRIER_BYTES,
    LEAST_REGISTERS,
    MAX_SPLIT,
    MOST_REGISTERS,
    Needs,
    limits,
    register_limits,
    resident,
    sm80_instruction,
    with_spare,
)
from tatami.plan.views.product_rules import algorithm_rules, register_rules
from tatami.region.ir import Read, Unary
from tatami.region.views.pairs.pair import PairView
from tatami.region.walk import nodes

PairPlan = Sm80Pair | Sm90Pair
DIRECT_REGISTERS = 50
"""Registers of a consumer thread for direct weights: their arithmetic, and operands per row or key; with fewer ptxas spills."""
PLACE_REGISTERS = 95
"""The same if an operand is read at each place, such as a mask."""
MANY_KEYS, MANY_KEYS_REGISTERS = 128, 16
"""Keys per block above which direct weights need more registers per consumer thread, and how many more."""
PARTS_REGISTERS = 32
"""Minimum registers of a producer thread that counts parts of keys."""
READ_REGISTERS = 8
"""Registers for an operand read at each place, in addition to one per two places while the next scores are multiplied."""
HEAVY_REGISTERS = 16
"""Registers for scores computed by a function of many instructions (a soft cap's tanh)."""
MIXED_REGISTERS = 32
"""Registers of a single consumer whose tiles are parts of keys, or of several batches."""
KNOWN_REGISTERS = 16
"""Registers for bounds of the keys that an input gives."""
SPARE_REGISTERS = 16
"""Registers of a consumer thread in addition to its estimate, like `plan/views/product_limits.py:SPARE`."""
WARP_PLACE_REGISTERS = 24
"""Registers for an operand read at each place, with warps of 32 rows and several first products; with fewer ptxas spills."""
MAX_SECTION = 1024
"""Maximum number of batches whose tiles are interleaved: kernels count a section's tiles in 32 bits."""


def threads_of_pair(plan: PairPlan) -> int:
    """Number of threads per CTA."""
    match plan:
        case Sm80Pair():
            return 32 * (plan.tile[0] // plan.warp_rows)
        case Sm90Pair():
            return 128 * (plan.consumers + 1)


def element_bytes(plan: PairPlan) -> int:
    """Bytes per element of an operand."""
    return 2 if isinstance(plan, Sm90Pair) or plan.inst_shape == "m16n8k16" else 4


def firsts_of(plan: PairPlan) -> int:
    """Number of products that the weights are made of."""
    return 1 + len(plan.others)


def values_of(plan: PairPlan) -> int:
    """Elements of a key that are copied for the second product alone."""
    return 0 if plan.shared else plan.tile[1]


def streamed_of(plan: PairPlan) -> int:
    """Elements of a key that are copied for each block."""
    return firsts_of(plan) * plan.depth + values_of(plan)


def row_bytes_of(shape: str, elements: int) -> int:
    """Bytes per row of shared memory, by the instruction that reads it: tf32 reads every other row in turn."""
    size, whole = {"m16n8k16": (2, 64), "m16n8k8": (4, 128)}.get(shape, (4, 64))
    return -(-elements * size // whole) * whole


def needs_of_pair(plan: PairPlan, target: Target) -> Needs:
    """Resources of one CTA. Registers: accumulators of all products, fragments of A, and addresses. Shared memory: the rows of
    first operands once, a slot per stage of the others; in rows of whole 64 or 128 bytes, or in slots of whole swizzle
    atoms."""
    (bm, bn, bk), firsts = plan.tile, firsts_of(plan)
    match plan:
        case Sm80Pair():
            registers = plan.warp_rows * (bn + firsts * bk) // 32 + plan.warp_rows + 72
            registers += plan.warp_rows * bk // 32 if plan.inst_shape == "m16n8k8" else 0
            registers += plan.warp_rows * (firsts - 1) if plan.inst_shape == "fma" else 0
            depth, columns = (row_bytes_of(plan.inst_shape, x) for x in (plan.depth, values_of(plan)))
            smem = bm * firsts * depth + plan.stages * bk * (firsts * depth + columns)
            return resident(target, threads_of_pair(plan), smem, registers, registers)
        case Sm90Pair():
            registers = bn // 2 + firsts * bk // 2 + bk // 4 + 32
            operands = ((bm, plan.depth), (bk, plan.depth), (bk, values_of(plan)))
            slots = [-(-rows * columns * 2 // 1024) * 1024 for rows, columns in operands]
            smem = BARRIER_BYTES + firsts * slots[0] + plan.stages * (firsts * slots[1] + slots[2])
            total = 128 * (plan.registers[0] + plan.consumers * plan.registers[1])
            threads = threads_of_pair(plan)
            return resident(target, threads, smem, registers, -(-total // threads))


def pair_rules(plan: PairPlan, view: PairView) -> list[str]:
    """Fields of a plan that contradict the Region, each other or the instructions, with the numbers."""
    bm, bn, bk = plan.tile
    out = algorithm_rules(plan.algo_choice, "attention", ("one_pass", TWO_PASS))
    shape = plan.inst_shape if isinstance(plan, Sm80Pair) else "m16n8k16"
    if shape != (wanted := sm80_instruction(view.dtype, view.tf32)):
        kind = f"{view.dtype} rounded to tf32" if view.tf32 else str(view.dtype)
        out.append(f"inst_shape {shape} does not multiply {kind}; {wanted} does")
    if plan.others != (others := tuple(f.acc for f in view.firsts[1:])):
        out.append(f"others {', '.join(plan.others) or 'none'}; the Region has {', '.join(others) or 'none'}")
    if plan.shared and (not view.shared or plan.depth != bn):
        out.append("shared: the second product's values are not what the first one multiplies by")
    match plan:
        case Sm80Pair():
            if plan.warp_rows not in (16, 32) or bm < 16 or bm % plan.warp_rows:
                return [f"{bm} rows by warps of {plan.warp_rows}: a warp has 16 or 32 rows, a tile whole warps"]
            if plan.shared and plan.inst_shape == "fma":
                out.append(
                    "shared with fma: rows that are swizzled for one product take a register for each address of the other"
                )
            if plan.width not in (1, 2, 4, 8):
                out.append(f"width {plan.width} is none of 1, 2, 4, 8")
        case Sm90Pair():
            if plan.consumers not in (1, 2, 3) or bm != 64 * plan.consumers:
                return [f"{bm} rows by {plan.consumers} consumers: one to three warpgroups have 64 rows each"]
            if max(bn, bk, plan.depth) > 256:
                out.append(f"{bn} columns, {bk} keys, depth {plan.depth}: wgmma and a TMA box have 256 at most")
            if plan.in_turns and plan.consumers == 1:
                out.append("in_turns: one consumer has nobody to take turns with")
            if plan.shared and plan.overlap and plan.stages == 1:
                out.append(
                    "shared with overlap, and one stage: the next block's keys wait for this block's, which are the values"
                )
            if plan.section and plan.split > 1:
                out.append(f"section {plan.section} with split {plan.split}: parts of the keys are not mixed")
            if not 0 <= plan.section <= MAX_SECTION:
                out.append(f"section {plan.section} is outside 0..{MAX_SECTION}")
            out += register_rules(plan)
    for name, size in (("columns", bn), ("keys", bk), ("depth", plan.depth)):
        if size < 16 or size % 16:
            out.append(f"{size} {name}: no multiple of 16, which one instruction covers")
    if not 1 <= plan.split <= MAX_SPLIT:
        out.append(f"split {plan.split} is outside 1..{MAX_SPLIT}")
    if not 1 <= plan.stages <= 4:
        out.append(f"stages {plan.stages} is outside 1..4")
    return out


def registers_of_weights(view: PairView, plan: PairPlan) -> int:
    """Registers of a consumer thread in addition to those of any pair, as measured with ptxas: it hoists loads from memory,
    and more of them in a kernel with one consumer, whose threads could have 255 registers each."""
    parts = [view.score, *(x.expr for x in view.lets), *([view.excluded] if view.excluded is not None else [])]
    places = [frozenset().union(*map(free_vars, n.map)) for e in parts for n in nodes(e) if isinstance(n, Read)]
    at_places = any({view.rows, view.keys} <= at for at in places)
    if view.direct:
        more = MANY_KEYS_REGISTERS if isinstance(plan, Sm90Pair) and plan.tile[2] > MANY_KEYS else 0
        return more + (PLACE_REGISTERS if at_places else DIRECT_REGISTERS)
    if not isinstance(plan, Sm90Pair):
        return 0
    alone, keys = plan.consumers == 1, plan.tile[2]
    out = keys // 4 + READ_REGISTERS if at_places and plan.overlap else 0
    if any(isinstance(n, Unary) and OPS[n.fn].is_costly for e in parts for n in nodes(e)):
        out += HEAVY_REGISTERS + (keys // 2 if alone else 0)
    if alone and plan.overlap and (plan.split > 1 or plan.section):
        out += MIXED_REGISTERS
    return out + (KNOWN_REGISTERS if view.known else 0)


def role_registers_of_pair(plan: Sm90Pair, view: PairView, target: Target) -> tuple[int, int]:
    """Minimum registers of a producer thread and of a consumer thread."""
    producer = PARTS_REGISTERS if plan.split > 1 else LEAST_REGISTERS
    least = needs_of_pair(plan, target).registers + registers_of_weights(view, plan)
    return producer, with_spare(plan, least, SPARE_REGISTERS, threads_of_pair(plan), target)


def pair_limits(plan: PairPlan, view: PairView, target: Target) -> list[str]:
    """Resources that the target does not have, each with both numbers."""
    n = needs_of_pair(plan, target)
    if isinstance(plan, Sm90Pair):
        fewest = role_registers_of_pair(plan, view, target)
        n = msgspec.structs.replace(n, registers=n.registers + registers_of_weights(view, plan))
        return [*limits(n, target, warps_share=True), *register_limits(plan, n.threads, fewest, max(plan.tile[1:]), target)]
    if plan.warp_rows == 32 and plan.others and registers_of_weights(view, plan) == PLACE_REGISTERS:
        n = msgspec.structs.replace(n, registers=n.registers + WARP_PLACE_REGISTERS)
    spills = [f"{n.registers} registers per thread > {MOST_REGISTERS}"] if n.registers > MOST_REGISTERS else []
    return limits(n, target) or spills
