"""The arena of each program as blocks of address by instruction, at one set of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.expr import shape_text
from tatami.core.kernel import THREADS
from tatami.core.module import Module
from tatami.execution.arena import Planner
from tatami.execution.frames import Layouts
from tatami.execution.ir import BufferInfo, ExecutionPlan
from tatami.execution.waves import operation_name
from tatami.explorer.ir import Block, Memory
from tatami.explorer.things import Catalogue


def memory(module: Module[ExecutionPlan], things: Catalogue, sizes: Mapping[str, int], threads: int) -> Iterator[Memory]:
    """The arena of every program whose sizes are known; for others the reason why there is none. Arenas of callees lie in that
    of their caller and are drawn by themselves."""
    layouts = Layouts(module)
    env = {**sizes, THREADS: threads}
    for name, plan in module.programs.items():
        own = layouts.own(name)
        unknown = sorted({s for b in own for s in free_vars(b.elements)} - env.keys())
        if unknown:
            yield Memory(name, missing=f"no value of {', '.join(unknown)}: give it with -D")
            continue
        placed = Planner(layouts, threads).plan(name, env)
        blocks = tuple(_blocks(name, own, placed.offsets, env, things))
        steps = tuple(i.debug_name or operation_name(i.op) for i in plan.instructions)
        waves = tuple(i.wave for i in plan.instructions)
        yield Memory(name, steps, waves, blocks, placed.bytes, placed.bytes_without_reuse)


def _blocks(
    program: str, own: tuple[BufferInfo, ...], offsets: tuple[int, ...], env: Mapping[str, int], things: Catalogue
) -> Iterator[Block]:
    for b, offset in zip(own, offsets):
        size = max(0, evaluate(b.elements, env)) * b.dtype.itemsize
        if size and b.first_use >= 0:
            shown = f"{b.dtype}{shape_text(b.shape)}"
            yield Block(b.id, shown, offset, size, b.first_use, b.last_use, things.find("execution", (program, b.id)))
