"""The common part of the interpreters: inputs of a run, calls, conditions and loops of programs, in numpy.

frontend.run            graphs on named operands          checked_inputs, known_sizes, turn_while, loop_results
tiny.run, region.run    programs with a `setup`           Machine
execution.run           instructions over buffers         known_sizes, turn_while, loop_results
runtime.python_steps    arrays of any kind of memory      turn_while
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, assert_never

import numpy as np

from tatami.core.algebra.visit import concrete, evaluate, free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape
from tatami.core.module import Module
from tatami.core.numbers.numerics import Array, Mode, cast, storage_dtype
from tatami.core.signature import Input, Signature
from tatami.core.sizes.binding import bind_loop_results, bind_results, bind_sizes
from tatami.core.tensor import numpy_dtype

Observe: TypeAlias = Callable[[str, str, Array], None]
"""observe(program, value, array) is told every value that is computed."""
A = TypeVar("A")


def checked_inputs(ports: Sequence[Input], given: Mapping[str, Any], mode: Mode) -> list[Array]:
    """The arrays of `ports`, each of the port's dtype or, in `float64` mode, of another float. Raises InputMismatch."""
    out: list[Array] = []
    for port in ports:
        if port.tensor not in given:
            names = ", ".join(p.tensor for p in ports)
            raise fail("InputMismatch", port.tensor, "the input is missing", f"pass it; the inputs are {names}")
        array = np.asarray(given[port.tensor])
        exact = array.dtype in (numpy_dtype(port.dtype), storage_dtype(port.dtype, mode))
        if not exact and not (mode == "float64" and port.dtype.is_float and array.dtype.kind == "f"):
            why = f"the array is {array.dtype}, the signature says {port.dtype}"
            raise fail("InputMismatch", port.tensor, why, f"convert it to {port.dtype} before the call")
        out.append(array)
    return out


def known_sizes(sizes: Mapping[str, Expr], bound: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a call passes, as far as the caller knows them."""
    return {symbol: int(evaluate(size, bound)) for symbol, size in sizes.items() if free_vars(size) <= bound.keys()}


@dataclass(frozen=True)
class Turns(Generic[A]):
    """A loop that ended: how often it turned, its last state, and of each scanned result the row of every turn."""

    count: int
    state: list[A]
    columns: list[list[A]]


def turn_while(
    trip: int | None,
    go: bool,
    state: Sequence[A],
    scanned: int,
    turn: Callable[[int, bool, Sequence[A]], Sequence[A]],
    is_true: Callable[[A], bool] = bool,
) -> Turns[A]:
    """Turn a loop below `trip` (None: without end) while its condition holds. `turn(iteration, go, state)` gives the next
    condition, the next state, and a row of each of the `scanned` results."""
    state, carried = list(state), len(state)
    columns: list[list[A]] = [[] for _ in range(scanned)]
    count = 0
    while (trip is None or count < trip) and go:
        results = turn(count, go, state)
        go, state = is_true(results[0]), list(results[1 : 1 + carried])
        for column, row in zip(columns, results[1 + carried :], strict=True):
            column.append(row)
        count += 1
    return Turns(count, state, columns)


class Typed(Protocol):
    """A declared result: its dtype, and its shape over size symbols."""

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""

    @property
    def shape(self) -> Shape:
        """The size of each axis, over size symbols."""


def loop_results(
    turns: Turns[Array], types: Sequence[Typed], new: Collection[str], sizes: dict[str, int], mode: Mode
) -> list[Array]:
    """The last state, then the rows of each scanned result stacked along a new axis 0. `new`: sizes that the loop decides."""
    rows = [np.shape(column[0]) if column else None for column in turns.columns]
    bind_loop_results([t.shape for t in types], [np.shape(s) for s in turns.state], rows, turns.count, new, sizes)
    stacked: list[Array] = []
    for column, t in zip(turns.columns, types[len(turns.state) :], strict=True):
        row = (max(0, n) for n in concrete(t.shape[1:], sizes))
        stacked.append(np.stack(column) if column else np.zeros((0, *row), storage_dtype(t.dtype, mode)))
    return [*turns.state, *stacked]


class Called(Protocol):
    """A call of programs: `tiny.ir.CallOp`, `region.ir.Step`."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the programs that it may call."""

    @property
    def sizes(self) -> dict[str, Expr]:
        """Size symbols of the callee, in terms of the caller's."""

    @property
    def new_symbols(self) -> tuple[str, ...]:
        """Size symbols of the caller that its results decide."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Further facts: `carried`, the number of states of a loop."""


class Signed(Protocol):
    """A program with a signature."""

    @property
    def signature(self) -> Signature:
        """Inputs and outputs of the program."""


P = TypeVar("P", bound=Signed)


class Machine(Generic[P]):
    """Runs the programs of one module. A subclass says what a program does on its arguments, and which sizes that decides."""

    def __init__(self, module: Module[P], mode: Mode, observe: Observe | None) -> None:
        self.module = module
        self.mode = mode
        self.observe = observe
        self.pool: dict[str, Array] = {name: tensor.array for name, tensor in module.constants.items()}
        """Constants of the module, and what `setup` made."""

    def program(self, name: str, arguments: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """The outputs of a program on positional arguments."""
        raise NotImplementedError

    def new_symbols(self, program: P) -> frozenset[str]:
        """The sizes that a program decides while it runs."""
        raise NotImplementedError

    def passed(self, program: P, arguments: Sequence[Array]) -> Sequence[Array]:
        """The arguments of a program from those of its call."""
        return arguments

    def run(self, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None) -> dict[str, Array]:
        """The outputs of `main` by tensor name. `setup`, when there is one, runs first and feeds the const_pool inputs."""
        setup = self.module.programs.get("setup")
        if setup is not None:
            given = {**self.pool, **inputs}
            shapes = {p.tensor: np.shape(given[p.tensor]) for p in setup.signature.inputs if p.tensor in given}
            results = self.program("setup", self._arguments(setup, given), bind_sizes(setup.signature, shapes, sizes))
            self.pool |= {port.tensor: value for port, value in zip(setup.signature.outputs, results)}
        main = self.module.main
        arguments = self._arguments(main, {**self.pool, **inputs})
        results = self.program("main", arguments, self._bound(main, arguments, sizes))
        return {port.tensor: value for port, value in zip(main.signature.outputs, results)}

    def _arguments(self, program: P, given: Mapping[str, Array]) -> list[Array]:
        ports = program.signature.inputs
        return [cast(a, p.dtype, self.mode) for p, a in zip(ports, checked_inputs(ports, given, self.mode), strict=True)]

    def _bound(self, program: P, arguments: Sequence[Array], sizes: Mapping[str, int] | None) -> dict[str, int]:
        shapes = {p.tensor: a.shape for p, a in zip(program.signature.inputs, arguments)}
        return bind_sizes(program.signature, shapes, sizes, self.new_symbols(program))

    def control(
        self,
        kind: Literal["program", "if", "loop"],
        call: Called,
        types: Sequence[Typed],
        operands: Sequence[Array],
        sizes: dict[str, int],
    ) -> list[Array]:
        """The results of a call, a condition or a loop; the sizes that it decides join `sizes`.

        if: operand 0 chooses the target. loop: (trip count, condition, carried…, invariants…); each turn's target gets
        (iteration, condition, carried…, invariants…) and gives (condition, carried…, rows…).
        """
        match kind:
            case "program":
                results = self._called(call, call.targets[0], operands, sizes)
            case "if":
                results = self._called(call, call.targets[0 if bool(operands[0]) else 1], operands[1:], sizes)
            case "loop":
                return self._loop(call, types, operands, sizes)
            case _:
                assert_never(kind)
        bind_results([t.shape for t in types], [np.shape(r) for r in results], call.new_symbols, sizes)
        return results

    def _called(self, call: Called, target: str, operands: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        program = self.module.programs[target]
        arguments = self.passed(program, operands)
        return self.program(target, arguments, self._bound(program, arguments, known_sizes(call.sizes, sizes)))

    def _loop(self, call: Called, types: Sequence[Typed], operands: Sequence[Array], sizes: dict[str, int]) -> list[Array]:
        trip, go, *rest = operands
        carried = int(call.attrs.get("carried", len(rest)))
        invariants = rest[carried:]

        def turn(iteration: int, go: bool, state: Sequence[Array]) -> list[Array]:
            lead = np.asarray(iteration, np.int64), np.asarray(go)
            return self._called(call, call.targets[0], [*lead, *state, *invariants], sizes)

        turns = turn_while(int(trip), bool(go), rest[:carried], len(types) - carried, turn)
        return loop_results(turns, types, call.new_symbols, sizes, self.mode)
