"""Meaning of a program of Regions in numpy: Regions, and steps through the programs they call (spec 3 §6.11, D2.15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.expr import evaluate, free_vars
from tatami.core.module import Module
from tatami.core.numbers.numerics import Mode, cast, storage_dtype
from tatami.core.sizes.binding import bind_loop_results, bind_results, bind_sizes, check_new_sizes
from tatami.core.tensor import numpy_dtype
from tatami.region.ir import Param, Program, Region, Step
from tatami.region.meaning.region import concrete, run_region, run_routine

Array: TypeAlias = np.ndarray
Sizes: TypeAlias = dict[str, int]
Observe: TypeAlias = Callable[[str, str, Array], None]

__all__ = ["run", "run_region"]


def run(
    module: Module[Program],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "declared",
    observe: Observe | None = None,
) -> dict[str, Array]:
    """The outputs of `main` by tensor name. `setup`, if the module has one, runs first and computes the const_pool inputs."""
    pool: dict[str, Array] = {name: tensor.array for name, tensor in module.constants.items()}
    machine = _Machine(module, mode, observe, pool)
    if "setup" in module.programs:
        setup = module.programs["setup"]
        given = {**pool, **inputs}
        shapes = {p.tensor: np.shape(given[p.tensor]) for p in setup.signature.inputs if p.tensor in given}
        results = machine.program("setup", _arguments(setup, given, mode), bind_sizes(setup.signature, shapes, sizes))
        pool.update((port.tensor, value) for port, value in zip(setup.signature.outputs, results))
    main = module.main
    arguments = _arguments(main, {**pool, **inputs}, mode)
    shapes = {port.tensor: a.shape for port, a in zip(main.signature.inputs, arguments)}
    results = machine.program("main", arguments, bind_sizes(main.signature, shapes, sizes, _new_symbols(main)))
    return {port.tensor: value for port, value in zip(main.signature.outputs, results)}


def _new_symbols(program: Program) -> set[str]:
    """Sizes that steps of the program decide while it runs."""
    return {symbol for item in program.body if isinstance(item, Step) for symbol in item.new_symbols}


def _arguments(program: Program, given: Mapping[str, Array], mode: Mode) -> list[Array]:
    out: list[Array] = []
    for port in program.signature.inputs:
        if port.tensor not in given:
            names = ", ".join(p.tensor for p in program.signature.inputs)
            raise fail("InputMismatch", port.tensor, "the input is missing", f"pass it; the inputs are {names}")
        array = np.asarray(given[port.tensor])
        wanted = (numpy_dtype(port.dtype), storage_dtype(port.dtype, mode))
        if array.dtype not in wanted and not (mode == "float64" and port.dtype.is_float and array.dtype.kind == "f"):
            raise fail(
                "InputMismatch",
                port.tensor,
                f"the array is {array.dtype}, the signature says {port.dtype}",
                f"convert it to {port.dtype} before the call",
            )
        out.append(cast(array, port.dtype, mode))
    return out


class _Machine:
    """Interpreter of the programs of one module."""

    def __init__(self, module: Module[Program], mode: Mode, observe: Observe | None, pool: Mapping[str, Array]) -> None:
        self.module = module
        self.mode = mode
        self.observe = observe
        self.pool = pool

    def program(self, name: str, arguments: Sequence[Array], sizes: Sizes) -> list[Array]:
        """Run one program on positional arguments; a tensor is dropped after its last use."""
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
        match step.kind:
            case "program":
                results = self.callee(step, step.targets[0], src, sizes)
            case "if":
                results = self.callee(step, step.targets[0 if bool(src[0]) else 1], src[1:], sizes)
            case "loop":
                results = self.loop(step, src, sizes)
            case "host":
                results = run_routine(step.name, step.targets[0], src, step.attrs)
            case _:
                assert_never(step.kind)
        if step.kind != "loop":
            shapes = [p.memref.shape for p in step.outputs]
            bind_results(shapes, [np.shape(r) for r in results], step.new_symbols, sizes)
        return {p.name: cast(np.asarray(r), p.memref.dtype, self.mode) for p, r in zip(step.outputs, results)}

    def callee(self, step: Step, name: str, arguments: Sequence[Array], sizes: Sizes) -> list[Array]:
        """Outputs of a called program whose size symbols are bound by the step and by the arguments' shapes."""
        program = self.module.programs[name]
        signature = program.signature
        arguments = self._with_pooled(program, arguments)
        given = {symbol: int(evaluate(size, sizes)) for symbol, size in step.sizes.items() if free_vars(size) <= sizes.keys()}
        shapes = {p.tensor: a.shape for p, a in zip(signature.inputs, arguments)}
        bound = bind_sizes(signature, shapes, given, _new_symbols(program))
        return self.program(name, arguments, bound)

    def _with_pooled(self, program: Program, arguments: Sequence[Array]) -> Sequence[Array]:
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

    def loop(self, step: Step, src: list[Array], sizes: Sizes) -> list[Array]:
        """Outputs of a loop over (trip count, condition, carried…, invariants…), as in CALL loop of tiny."""
        count = int(step.attrs.get("carried", len(src) - 2))  # type: ignore[arg-type]
        trip, condition = int(src[0]), bool(src[1])
        carried, invariants = src[2 : 2 + count], src[2 + count :]
        scanned: list[list[Array]] = [[] for _ in step.outputs[count:]]
        iteration = 0
        while iteration < trip and condition:
            arguments = [np.asarray(iteration, np.int64), np.asarray(condition), *carried, *invariants]
            results = self.callee(step, step.targets[0], arguments, sizes)
            condition, carried = bool(results[0]), results[1 : 1 + count]
            for column, value in zip(scanned, results[1 + count :]):
                column.append(value)
            iteration += 1
        shapes = [p.memref.shape for p in step.outputs]
        rows = [np.shape(c[0]) if c else None for c in scanned]
        bind_loop_results(shapes, [np.shape(c) for c in carried], rows, iteration, step.new_symbols, sizes)
        stacked = [
            np.stack(column) if column else np.zeros((0, *concrete(p.memref.shape[1:], sizes)), self._storage(p))
            for column, p in zip(scanned, step.outputs[count:])
        ]
        return [*carried, *stacked]

    def _storage(self, param: Param) -> np.dtype:
        return storage_dtype(param.memref.dtype, self.mode)


def _operands(item: Region | Step) -> tuple[str, ...]:
    if isinstance(item, Step):
        return item.inputs
    return (*(p.name for p in item.inputs), *(t.updates for t in item.outputs if t.updates))
