"""Which kernels of a wave run side by side, one thread each (spec 1 "Program", D2.14).

    wave 1: r3 9 µs, r4 8 µs, r5 9 µs, all serial     26 µs one after the other, 13 µs + 5 µs on two threads: beside
    wave 1: r3 90 µs on all threads, r4 2 µs serial   one after the other: r3 uses the threads already

A kernel whose plan divides it over threads is left alone: it fills the machine by itself. Instructions of one wave are
independent and their buffers share no bytes (arena offsets are planned by wave), so nothing else has to hold.
"""

from __future__ import annotations

import msgspec

from tatami.execution.ir import ExecutionPlan, Instruction, Launch
from tatami.plan.ir import CpuRows, ProgramPlan, RegionPlan, Scalar

WAKE_SECONDS = 5e-6
"""What handing work to sleeping threads costs, and getting it back (notes/cpu.md §6)."""


def run_beside(plan: ExecutionPlan, schedule: ProgramPlan) -> ExecutionPlan:
    """The plan with `beside` set where side by side saves more than it costs."""
    seconds = {r.region: s for r in schedule.regions if (s := _serial_seconds(r)) is not None}
    waves: dict[int, list[int]] = {}
    for i, ins in enumerate(plan.instructions):
        if isinstance(ins.op, Launch) and ins.debug_name in seconds:
            waves.setdefault(ins.wave, []).append(i)
    chosen = {
        i for members in waves.values() if _pays([seconds[plan.instructions[i].debug_name] for i in members]) for i in members
    }
    if not chosen:
        return plan
    out: list[Instruction] = []
    for i, ins in enumerate(plan.instructions):
        out.append(msgspec.structs.replace(ins, beside=True) if i in chosen else ins)
    return msgspec.structs.replace(plan, instructions=tuple(out))


def _pays(seconds: list[float]) -> bool:
    """On two threads already: more only save more."""
    if len(seconds) < 2:
        return False
    return sum(seconds) > max(max(seconds), sum(seconds) / 2) + WAKE_SECONDS


def _serial_seconds(region: RegionPlan) -> float | None:
    """The estimated time of a kernel that one thread runs; None where threads divide it or nothing is known."""
    if len(region.choices) != 1 or "total" not in region.choices[0].estimate:
        return None
    match region.choices[0].plan:
        case CpuRows(parallel=0, blocks=None) | Scalar():
            return region.choices[0].estimate["total"]
        case _:
            return None
