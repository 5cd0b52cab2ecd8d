"""The programs in which a step between two partitions is measured: the kernels that it replaces, and those in their place.

    main: … r4(n7) -> n10; r5(n10, n2) -> n12 …        before: r0(t0) -> t2; r1(t2, t1) -> t3
                                                       after:  r0(t0, t1) -> t3

Both have the same inputs and outputs, by canonical names, so that equal steps of any models are measured once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.plan.named_region import constant_tensors
from tatami.region.ir import Program, Region
from tatami.region.lower import lower_program
from tatami.region.partition_ir import Partition
from tatami.region.views.canonical_key import Renaming, canonical, rename
from tatami.runtime.building.cache import content_key
from tatami.search.cut import Part
from tatami.search.suggesters.fusion import Move


@dataclass(frozen=True)
class Step:
    """One step with canonical names. `tensors`: name in the model -> canonical name; `constants`: inputs known at load; `sizes`:
    values of its symbols."""

    program: str
    before: tuple[Region, ...]
    after: tuple[Region, ...]
    tensors: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: frozenset[str]
    sizes: Mapping[str, int]

    @cached_property
    def memrefs(self) -> dict[str, MemRef]:
        """Type and shape of each tensor."""
        regions = (*self.before, *self.after)
        read = {p.name: p.memref for r in regions for p in r.inputs}
        return read | {t.name: t.memref for r in regions for t in r.outputs}

    @cached_property
    def key(self) -> str:
        """A hash of the two programs."""
        sides = [msgspec.json.encode([to_builtins(r) for r in side]) for side in (self.before, self.after)]
        return content_key(["fusion", *sides, *sorted(self.constants)])[:32]

    def module(self, compilation: Compilation, side: Sequence[Region]) -> Module[Program]:
        """The program of one side, in explicit form."""
        part = Part(self.program, self.tensors, self.constants, self.sizes)
        inputs, outputs = ({n: self.memrefs[n] for n in names} for names in (self.inputs, self.outputs))
        return part.module(compilation, inputs, outputs, side)


def step_of(compilation: Compilation, move: Move, sizes: Mapping[str, int]) -> Step | None:
    """The programs of a step; None if it cannot be measured alone: a routine, a value updated in place, a size that data decide,
    or no result that both sides have."""
    own: Partition = compilation.stages["partition"][move.program]
    before = _regions(compilation, move.program, own, move.replaced)
    after = _regions(compilation, move.program, move.made, move.changed)
    if before is None or after is None:
        return None
    made = [[t.name for r in side for t in r.outputs] for side in (before, after)]
    outputs = tuple(n for n in made[0] if n in made[1])
    inside = {n for side in made for n in side}
    inputs = tuple(dict.fromkeys(p.name for r in (*before, *after) for p in r.inputs if p.name not in inside))
    if not outputs or any(_reads_early(side) for side in (before, after)):
        return None
    rest = sorted(inside - {*outputs}, key=lambda n: (n not in made[0], [*made[0], *made[1]].index(n)))
    tensors = {n: f"t{k}" for k, n in enumerate((*inputs, *outputs, *rest))}
    sides = [[(r, canonical(r)[1]) for r in side] for side in (before, after)]
    used = dict.fromkeys(s for side in sides for _, names in side for s in names.symbols)
    symbols = {n: f"s{k}" for k, n in enumerate(used)}
    if any(n not in sizes for n in symbols) or (symbols and move.program != "main"):
        return None
    module = compilation.stages["region"]
    known = constant_tensors(module, move.program) | frozenset(constant_arguments(module).get(move.program, ()))

    def renamed(side: Sequence[tuple[Region, Renaming]]) -> tuple[Region, ...]:
        names = [Renaming(tensors, n.lets, n.axes, symbols) for _, n in side]
        return tuple(rename(r, n, f"r{k}") for k, ((r, _), n) in enumerate(zip(side, names, strict=True)))

    return Step(
        program=move.program,
        before=renamed(sides[0]),
        after=renamed(sides[1]),
        tensors=tensors,
        inputs=tuple(tensors[n] for n in inputs),
        outputs=tuple(tensors[n] for n in outputs),
        constants=frozenset(tensors[n] for n in inputs if n in known),
        sizes={new: sizes[n] for n, new in symbols.items()},
    )


def _regions(compilation: Compilation, name: str, partition: Partition, groups: Sequence[int]) -> list[Region] | None:
    stages = compilation.stages
    program, book = stages["tiny"].programs[name], stages["indexbook"].programs[name]
    body = lower_program(program, book, stages["poly_view"].programs[name], partition, groups)[0].body
    found = [r for r in body if isinstance(r, Region) and r.opaque is None and not any(t.updates for t in r.outputs)]
    return found if len(found) == len(body) else None


def _reads_early(side: Sequence[Region]) -> bool:
    """True if a Region reads what a later one of them makes: something between them is missing."""
    made = {t.name for r in side for t in r.outputs}
    ready: set[str] = set()
    for r in side:
        if any(p.name in made and p.name not in ready for p in r.inputs):
            return True
        ready |= {t.name for t in r.outputs}
    return False
