"""A program of one Region, cut out of a compilation: what a candidate for the Region's plan is measured in.

    main: … r4(n7, const2, n9) -> n10 …        r(t0, t1, t2) -> t3, with t1 a constant

Its tensors, values and sizes have canonical names, so that equal Regions of any models make the same program; axes keep theirs,
by which plans name them. Its operands are inputs; constants stay constants, so that they can be packed when the program is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

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
from tatami.plan.ir import Guarded
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.plan.named_region import constant_tensors
from tatami.plan.rename import kept_choices
from tatami.plan.shipped import measured_key
from tatami.region.ir import Program, Region
from tatami.region.views.canonical_key import Renaming, canonical, rename


@dataclass(frozen=True)
class Place:
    """One Region of a program that a search may decide. `constants`: the operands known at load, by canonical name; `sizes`:
    values of its canonical symbols; `choices`: its plans now."""

    program: str
    region: Region
    names: Renaming
    key: str
    constants: frozenset[str]
    sizes: Mapping[str, int]
    choices: tuple[Guarded, ...]

    @property
    def form(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """The key of the plan and the sizes: Regions with the same ones are tuned once."""
        return self.key, tuple(sorted(self.sizes.items()))

    @property
    def measured_key(self) -> str:
        """The key of the plan and the constant operands."""
        return measured_key(self.key, self.constants)

    def decision(self) -> object:
        """The plans that the Region has now, as a document."""
        return to_builtins(kept_choices(self.choices, self.region))


def places(compilation: Compilation, sizes: Mapping[str, int]) -> Iterator[Place]:
    """The Regions of a program that can be measured alone at these sizes, in order. Left out: routines, values updated in
    place, the program that runs once at load, and Regions with a size that data decide."""
    module, plan = compilation.stages["region"], compilation.stages["plan"]
    arguments = constant_arguments(module)
    for name, program in module.programs.items():
        if name == "setup":
            continue
        known = constant_tensors(module, name) | frozenset(arguments.get(name, ()))
        planned = {r.region: r for r in plan.programs[name].regions}
        for region in program.body:
            if not isinstance(region, Region) or region.opaque is not None or any(t.updates for t in region.outputs):
                continue
            names = canonical(region)[1]
            found = {new: sizes[old] for old, new in names.symbols.items() if old in sizes and name == "main"}
            if len(found) == len(names.symbols):
                constants = frozenset(names.tensors[p.name] for p in region.inputs if p.name in known)
                r = planned[region.name]
                yield Place(name, region, names, r.key, constants, found, r.choices)


def cut(compilation: Compilation, place: Place) -> Module[Program]:
    """The program of one Region."""
    region = _renamed(place)
    part = Part(place.program, place.names.tensors, place.constants, place.sizes)
    inputs = {p.name: p.memref for p in region.inputs}
    return part.module(compilation, inputs, {t.name: t.memref for t in region.outputs}, (region,))


@dataclass(frozen=True)
class Part:
    """A part of a program with canonical names. `tensors`: name in the model -> canonical name; `constants`: inputs known at load;
    `sizes`: values of its symbols."""

    program: str
    tensors: Mapping[str, str]
    constants: frozenset[str]
    sizes: Mapping[str, int]

    def module(
        self, compilation: Compilation, inputs: Mapping[str, MemRef], outputs: Mapping[str, MemRef], body: Sequence[Region]
    ) -> Module[Program]:
        """The part as a program of its own. Constants have the model's values, or generated ones where `setup` computes them."""
        whole = compilation.stages["region"]
        program = whole.programs[self.program]
        ports = dict(zip(program.inputs, program.signature.inputs))
        old = {new: name for name, new in self.tensors.items()}
        rng = np.random.default_rng(0)
        constants: dict[str, Tensor] = {}
        made = []
        for name, memref in inputs.items():
            is_constant = name in self.constants
            plain = Input(name, memref.dtype, memref.shape)
            made.append(msgspec.structs.replace(plain, role="const", storage="const_pool") if is_constant else plain)
            if is_constant:
                port = ports.get(old[name])
                given = whole.constants.get(port.tensor) if port is not None else None
                shape = concrete(memref.shape, self.sizes)
                constants[name] = given or Tensor(generate(rng, memref.dtype, shape))
        results = tuple(Output(n, m.dtype, m.shape) for n, m in outputs.items())
        signature = Signature(tuple(made), results, defaults=dict(self.sizes))
        return Module({"main": Program(signature, tuple(inputs), tuple(outputs), tuple(body))}, constants)


def _renamed(place: Place) -> Region:
    return rename(place.region, msgspec.structs.replace(place.names, axes={}), "r")


def port_bytes(place: Place) -> tuple[int, int]:
    """(bytes of the constant operands, bytes of the others and of the results)."""
    region = _renamed(place)
    constant = other = 0
    ports = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}
    for name, memref in ports.items():
        size = prod(concrete(memref.shape, place.sizes)) * memref.dtype.itemsize
        constant, other = (constant + size, other) if name in place.constants else (constant, other + size)
    return constant, other
