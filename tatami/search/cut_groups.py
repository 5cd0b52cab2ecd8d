"""The programs in which a step between two partitions is measured: the kernels that it replaces, and those in their place.

    main: … r4(n7) -> n10; r5(n10, n2) -> n12 …        before: r0(t0) -> t2; r1(t2, t1) -> t3
                                                       after:  r0(t0, t1) -> t3

Both have the same inputs and outputs, by canonical names, so that equal steps of any models are measured once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from tatami.bench.inputs import generate
from tatami.compilation import Compilation
from tatami.core.algebra.visit import concrete
from tatami.core.codec import to_builtins
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.core.tensor import Tensor
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.plan.named_region import constant_tensors
from tatami.region.ir import Program, Region
from tatami.region.lower import lower_program
from tatami.region.partition_ir import Partition
from tatami.region.views.canonical_key import Renaming, canonical, rename
from tatami.runtime.building.cache import content_key
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

    def module(self, compilation: Compilation, side: Sequence[Region], seed: int = 0) -> Module[Program]:
        """The program of one side, in explicit form. Constants have the model's values, or generated ones."""
        region = compilation.stages["region"]
        program = region.programs[self.program]
        ports = dict(zip(program.inputs, program.signature.inputs))
        old = {new: name for name, new in self.tensors.items()}
        rng = np.random.default_rng(seed)
        constants: dict[str, Tensor] = {}
        inputs: list[Input] = []
        for name in self.inputs:
            memref = self.memrefs[name]
            plain = Input(name, memref.dtype, memref.shape)
            inputs.append(
                msgspec.structs.replace(plain, role="const", storage="const_pool") if name in self.constants else plain
            )
            if name in self.constants:
                port = ports.get(old[name])
                given = region.constants.get(port.tensor) if port is not None else None
                shape = concrete(memref.shape, self.sizes)
                constants[name] = given if given is not None else Tensor(generate(rng, memref.dtype, shape))
        outputs = tuple(Output(n, self.memrefs[n].dtype, self.memrefs[n].shape) for n in self.outputs)
        signature = Signature(tuple(inputs), outputs, defaults=dict(self.sizes))
        return Module({"main": Program(signature, self.inputs, self.outputs, tuple(side))}, constants)


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
    symbols = {n: f"s{k}" for k, n in enumerate(_symbols((*before, *after)))}
    if any(n not in sizes for n in symbols) or (symbols and move.program != "main"):
        return None
    module = compilation.stages["region"]
    known = constant_tensors(module, move.program) | frozenset(constant_arguments(module).get(move.program, ()))
    names = Renaming(tensors, {}, {}, symbols)
    return Step(
        program=move.program,
        before=tuple(_renamed(before, names)),
        after=tuple(_renamed(after, names)),
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


def _symbols(regions: Sequence[Region]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(s for r in regions for s in canonical(r)[1].symbols))


def _renamed(regions: Sequence[Region], names: Renaming) -> Iterator[Region]:
    for k, r in enumerate(regions):
        own = canonical(r)[1]
        yield rename(r, msgspec.structs.replace(names, lets=own.lets, axes=own.axes), f"r{k}")
