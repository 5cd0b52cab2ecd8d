"""Meaning of a program of Regions in numpy: Regions, and steps through the programs they call (spec 3 §6.11, D2.15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core.module import Module
from tatami.core.numbers.numerics import Mode, cast
from tatami.core.numbers.run_programs import Machine, Observe
from tatami.core.sizes.binding import bind_results, check_new_sizes
from tatami.region.ir import Program, Region, Step
from tatami.region.meaning.region import run_region, run_routine

Array: TypeAlias = np.ndarray
Sizes: TypeAlias = dict[str, int]

__all__ = ["run", "run_region"]


def run(
    module: Module[Program],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "declared",
    observe: Observe | None = None,
) -> dict[str, Array]:
    """The outputs of `main` by tensor name. `setup`, if the module has one, runs first and computes the const_pool inputs."""
    return _Machine(module, mode, observe).run(inputs, sizes)


class _Machine(Machine[Program]):
    def new_symbols(self, program: Program) -> frozenset[str]:
        return frozenset(symbol for item in program.body if isinstance(item, Step) for symbol in item.new_symbols)

    def program(self, name: str, arguments: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """The outputs of one program on positional arguments; a tensor is dropped after its last use."""
        program = self.module.programs[name]
        sizes = dict(sizes)
        values: dict[str, Array] = dict(zip(program.inputs, arguments, strict=True))
        last: dict[str, int] = {}
        for position, item in enumerate(program.body):
            for used in _operands(item):
                last[used] = position
        keep = set(program.outputs)
        for position, item in enumerate(program.body):
            made = self.region(name, item, values, sizes) if isinstance(item, Region) else self.step(item, values, sizes)
            if isinstance(item, Step):
                check_new_sizes(program.signature, item.new_symbols, sizes)
            for made_name, array in made.items():
                values[made_name] = array
                if self.observe is not None:
                    self.observe(name, made_name, array)
            for used in _operands(item):
                if last[used] == position and used not in keep:
                    values.pop(used, None)
        return [values[out] for out in program.outputs]

    def region(self, program: str, region: Region, values: Mapping[str, Array], sizes: Sizes) -> dict[str, Array]:
        """Outputs of one Region, by tensor name."""
        return run_region(region, values, sizes, self.mode, self.observe, program)

    def step(self, step: Step, values: Mapping[str, Array], sizes: Sizes) -> dict[str, Array]:
        """Outputs of one step, by tensor name: a called program, a branch, a loop or a host routine."""
        src = [values[i] for i in step.inputs]
        types = [p.memref for p in step.outputs]
        match step.kind:
            case "program" | "if" | "loop":
                results = self.control(step.kind, step, types, src, sizes)
            case "host":
                results = run_routine(step.name, step.targets[0], src, step.attrs)
                bind_results([t.shape for t in types], [np.shape(r) for r in results], step.new_symbols, sizes)
            case _:
                assert_never(step.kind)
        return {p.name: cast(np.asarray(r), p.memref.dtype, self.mode) for p, r in zip(step.outputs, results)}

    def passed(self, program: Program, arguments: Sequence[Array]) -> Sequence[Array]:
        """The arguments, followed by values of the ConstPool that the program takes and its caller does not pass."""
        ports = program.signature.inputs
        if len(arguments) == len(ports):
            return arguments
        passed = iter(arguments)
        return [
            cast(self.pool[p.tensor], p.dtype, self.mode)
            if p.storage == "const_pool" and p.tensor in self.pool
            else next(passed)
            for p in ports
        ]


def _operands(item: Region | Step) -> tuple[str, ...]:
    if isinstance(item, Step):
        return item.inputs
    return (*(p.name for p in item.inputs), *(t.updates for t in item.outputs if t.updates))
