"""Kernels and loops of a wave that run in parallel, one thread each (spec 1 "Program", D2.14).

    wave 1: r3 9 µs, r4 8 µs, r5 9 µs, all serial     26 µs in sequence, 13 µs + 5 µs on two threads: in parallel
    wave 1: r3 90 µs on all threads, r4 2 µs serial   in sequence: r3 uses all threads
    wave 2: r5 loop forth, r6 loop back               alike: in parallel, if each thread gets the same number

A kernel whose plan divides it over threads is left alone: it fills the machine by itself. Instructions of one wave are
independent and their buffers and frames share no bytes (arena offsets are planned by wave), so nothing else has to hold.

The halves of a bidirectional layer are loops that turn as often over values of the same shapes. Threads that divide a turn
wait for each other several times in it; a thread that has a half to itself waits at the end. So all loops of a wave that are
alike run in parallel, if threads divide their number and there are enough turns: the entry tests both (c/print_entry.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.execution.ir import Choose, Copy, ExecutionPlan, Instruction, Launch, Loop
from tatami.plan.ir import CpuRows, ProgramPlan, RegionPlan, Scalar

WAKE_SECONDS = 5e-6
"""Seconds to hand work to sleeping threads and to wait for it (notes: cpu §6)."""


def run_beside(plan: ExecutionPlan, schedule: ProgramPlan) -> ExecutionPlan:
    """The plan with `beside` set for kernels whose parallel run saves more than it costs."""
    seconds = {r.region: s for r in schedule.regions if (s := _serial_seconds(r)) is not None}
    waves: dict[int, list[int]] = {}
    for i, ins in enumerate(plan.instructions):
        if isinstance(ins.op, Launch) and ins.debug_name in seconds:
            waves.setdefault(ins.wave, []).append(i)
    chosen = {
        i for members in waves.values() if _pays([seconds[plan.instructions[i].debug_name] for i in members]) for i in members
    }
    return _marked(plan, chosen)


def run_loops_beside(programs: Mapping[str, ExecutionPlan]) -> dict[str, ExecutionPlan]:
    """The programs with `beside` set for loops of a wave that are alike."""
    return {name: _marked(plan, _alike(plan, programs)) for name, plan in programs.items()}


def may_run_beside(ins: Instruction, programs: Mapping[str, ExecutionPlan]) -> bool:
    """True if a thread can run the instruction by itself: a kernel, or a loop of a known number of turns whose body is kernels
    and checks no sizes (the record of a check is per thread)."""
    match ins.op:
        case Launch():
            return True
        case Loop(body=body, new_symbols=(), varying=()) if ins.inputs[0] and body in programs:
            inner = programs[body]
            only_kernels = all(isinstance(i.op, Launch | Choose | Copy) for i in inner.instructions)
            return only_kernels and not inner.signature.assumptions
        case _:
            return False


def _alike(plan: ExecutionPlan, programs: Mapping[str, ExecutionPlan]) -> set[int]:
    """Positions of the loops of a wave that have the same number of turns and shapes of results."""
    info = {b.id: b for b in plan.buffers}
    groups: dict[object, list[int]] = {}
    for i, ins in enumerate(plan.instructions):
        if isinstance(ins.op, Loop) and may_run_beside(ins, programs):
            results = tuple((info[o].dtype, info[o].shape) for o in ins.outputs)
            groups.setdefault((ins.wave, ins.inputs[0], ins.op.carried, results), []).append(i)
    by_wave: dict[int, list[list[int]]] = {}
    for members in groups.values():
        by_wave.setdefault(plan.instructions[members[0]].wave, []).append(members)
    best = [max(found, key=len) for found in by_wave.values()]
    return {i for members in best if len(members) > 1 for i in members}


def _marked(plan: ExecutionPlan, chosen: set[int]) -> ExecutionPlan:
    if not chosen:
        return plan
    out: list[Instruction] = []
    for i, ins in enumerate(plan.instructions):
        out.append(msgspec.structs.replace(ins, beside=True) if i in chosen else ins)
    return msgspec.structs.replace(plan, instructions=tuple(out))


def _pays(seconds: list[float]) -> bool:
    """True if two threads save more than waking them costs; more threads save more."""
    if len(seconds) < 2:
        return False
    return sum(seconds) > max(max(seconds), sum(seconds) / 2) + WAKE_SECONDS


def _serial_seconds(region: RegionPlan) -> float | None:
    """The estimated time of loops that are too little work for a second thread; None if threads divide them or if there is no
    estimate."""
    if len(region.choices) != 1:
        return None
    (choice,) = region.choices
    is_serial = isinstance(choice.plan, Scalar | CpuRows) and choice.estimate.get("threads", 0.0) <= 1.0
    return choice.estimate.get("total") if is_serial else None
