"""A compiled model as a Python callable (design §4): names, checks, copies, sizes, outputs of the caller's kind.

    f(array), f(x=array) or f({"x": array}, out={"y": buffer}) -> {"y": array}
    call = f.bind(x=array); call()          the same arrays for every call, checked once

The program is a `LoadedProgram`: a compiled CPU or GPU program, or the reference. A Function may be called from
several threads at once; each call has its own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.faults.arguments import mapping_argument
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature, symbols
from tatami.core.tensor import numpy_dtype
from tatami.execution.ir import ExecutionPlan
from tatami.runtime.arrays import HostArrays, Kind, Taken, arrange
from tatami.runtime.bound_call import Array, BoundCall
from tatami.runtime.cpu.quick_call import QuickCall, Shapes
from tatami.runtime.memory import Memory
from tatami.runtime.written import count_write

KEPT_SHAPES = 256
"""Maximum number of tuples of shapes for which quick calls are kept."""


A = TypeVar("A", bound=Array)


class Arrays(Protocol[A]):
    """Conversion of the caller's arrays for a program: `HostArrays`, or `CudaArrays` for a GPU."""

    def take(self, value: object, port: Input) -> Taken:
        """An input in the form that kernels read: checked, in place or copied. Raises InputMismatch."""

    def take_output(self, value: object, port: Output) -> A:
        """A caller's `out=` array, to be written. Raises InputMismatch."""

    def empty(self, shape: Sequence[int], dtype: DType) -> A:
        """An uninitialised array in the program's memory. Raises OutOfMemory."""

    def aligned_copy(self, array: A, dtype: DType, alignment: int = 1, /) -> A:
        """A copy in the program's memory, at a multiple of `alignment` bytes and row by row. Raises OutOfMemory."""

    def address(self, array: A, /) -> int:
        """The address of the array's first byte."""

    def overlaps(self, a: A, b: A) -> bool:
        """True if the two arrays share bytes."""

    def copy(self, to: A, source: A, /) -> None:
        """Copy the values of `source` to `to`, wherever each lies."""

    def writable_in_place(self, array: A) -> bool:
        """True if the program can write a caller's array directly."""

    def shares(self, kind: Kind) -> bool:
        """True if `give` returns the array's own memory."""

    def give(self, array: A, kind: Kind) -> object:
        """An output as an array of the caller's kind."""


class LoadedProgram(Protocol[A]):
    """The interface of a program that a Function runs."""

    def bind(
        self, program: str, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Size symbol of a program -> value, from shapes of its inputs. Raises TatamiError."""

    def run(self, program: str, inputs: Sequence[A], sizes: Mapping[str, int], outputs: Sequence[A | None] = ()) -> list[A]:
        """Results by signature; an output that updates an input is that input's array. Raises TatamiError."""

    def fast(self, program: str, inputs: Sequence[A], sizes: Mapping[str, int], results: Sequence[A]) -> Callable[[], None]:
        """A call with these arrays fixed."""

    def memory(self, sizes: Mapping[str, int]) -> Memory:
        """Bytes by purpose, at these sizes."""


class Function:
    """A loaded program that can be called."""

    def __init__(
        self,
        execution: Module[ExecutionPlan],
        program: LoadedProgram[Any],
        signature: Signature | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.execution = execution
        self.program = program
        self.arrays: Arrays[Any] = getattr(program, "arrays", None) or HostArrays()
        self.signature = signature or execution.main.signature
        self.sizes = dict(sizes or {})
        """Values of size symbols that no input decides."""
        kinds = {b.id: b.kind for b in execution.main.buffers}
        pairs = list(zip(execution.main.input_buffers, self.signature.inputs))
        self.arguments: tuple[Input, ...] = tuple(p for id, p in pairs if kinds[id] == "input")
        """The inputs a caller passes."""
        self._argument_ids = tuple(id for id, _ in pairs if kinds[id] == "input")
        self._names = tuple(p.tensor for p in self.arguments)
        self._mutable = tuple(k for k, p in enumerate(self.arguments) if p.mutability == "mutable")
        self._bound: dict[Shapes, dict[str, int]] = {}
        self._last_sizes: Mapping[str, int] | None = None
        self._kinds = tuple(numpy_dtype(p.dtype) for p in self.arguments)
        self._quick: dict[Shapes, QuickCall] = {}
        self._recent: QuickCall | None = None
        """The quick call that ran last, which is tried first."""
        self.copies: dict[str, int] = {}
        """Input or output -> number of times it was copied."""

    # -- calls -----------------------------------------------------------------------------------

    def __call__(self, *inputs: object, out: Mapping[str, object] | None = None, **named: object) -> dict[str, Any]:
        """Run once; inputs in their order, by name, or as one mapping. Raises TatamiError: InputMismatch, AxisAlignmentMismatch, OutOfMemory, IndexOutOfRange, …"""
        first = inputs[0] if len(inputs) == 1 and not named else None
        given = first if type(first) is dict else self._by_name(inputs, named)
        recent = self._recent
        if recent is not None and out is None:
            if (made := recent.run(given)) is not None:
                self._last_sizes = recent.sizes
                return made
            if (made := self._at_other_shapes(given)) is not None:
                return made
        return self._call(given, out)

    def _call(self, given: Mapping[str, object], out: Mapping[str, object] | None) -> dict[str, object]:
        """A call without a quick one: the first at these shapes, or with arrays that have to be copied."""
        taken, sizes = self._take(given)
        arrays = self._separate(taken)
        outputs, finish = ((), None) if out is None else self._given_outputs(out, taken, arrays, sizes)
        results = self._placed(self.program.run("main", arrays, sizes, outputs), out or {})
        self._write_back(taken, arrays)
        if finish is not None:
            for theirs, made in finish:
                self.arrays.copy(theirs, made)
        for value in self._written_by(taken, out):
            count_write(value)
        self._learn(taken, sizes)
        return self._give(taken, arrays, results, out)

    def _at_other_shapes(self, given: Mapping[str, object]) -> dict[str, np.ndarray] | None:
        """The outputs of a quick call for the shapes of these arrays; None if there is none yet."""
        values: list[Any] = [given.get(n) for n in self._names]
        if any(type(v) is not np.ndarray for v in values):
            return None
        other = self._quick.get(tuple([v.shape for v in values]))
        if other is None or other is self._recent or (made := other.run(given)) is None:
            return None
        self._recent, self._last_sizes = other, other.sizes
        return made

    def _learn(self, taken: Sequence[Taken], sizes: dict[str, int]) -> None:
        """Prepare a quick call for these shapes, after a call whose arrays were all used in place."""
        make = getattr(self.program, "quick", None)
        ports: tuple[Input | Output, ...] = (*self.arguments, *self.signature.outputs)
        plain = all(t.kind == "numpy" and not t.copied for t in taken) and not any(p.layout or p.alignment for p in ports)
        if make is None or not plain or self._mutable:
            return
        shapes = tuple(t.original.shape for t in taken)
        inputs = dict(zip(self._names, zip(shapes, self._kinds)))
        call = make(sizes, inputs, tuple(p.tensor for p in self.signature.outputs))
        if call is not None:
            if len(self._quick) >= KEPT_SHAPES:
                self._quick.clear()
            self._quick[shapes] = self._recent = call

    def bind(self, *inputs: object, out: Mapping[str, object] | None = None, **named: object) -> BoundCall:
        """Fix all arrays; the result is called without arguments and overwrites the same outputs. Raises TatamiError."""
        taken, sizes = self._take(self._by_name(inputs, named))
        arrays = self._separate(taken)
        ports = self.signature.outputs
        given, finish = self._given_outputs(out, taken, arrays, sizes) if out is not None else ((None,) * len(ports), None)
        results: list[Array] = []
        by_id = dict(zip(self._argument_ids, arrays))
        for id, port, array in zip(self.execution.main.output_buffers, ports, given):
            unknown = sorted({n for s in port.shape for n in free_vars(s)} - sizes.keys())
            if unknown and array is None:
                raise fail(
                    "UnboundSymbol",
                    port.tensor,
                    f"its size {unknown[0]} is known only after a run",
                    "call f(...) instead of binding it",
                )
            if id in by_id:
                results.append(by_id[id])
            else:
                if array is None:
                    array = self.arrays.empty([evaluate(s, sizes) for s in port.shape], port.dtype)
                    if port.alignment and self.arrays.address(array) % port.alignment:
                        array = self.arrays.aligned_copy(array, port.dtype, port.alignment)
                results.append(array)
        call = self.program.fast("main", arrays, sizes, results)
        refresh = tuple(
            (a, partial(self._readable, t.original, p)) for a, t, p in zip(arrays, taken, self.arguments) if a is not t.original
        )
        given_back = self._give(taken, arrays, results, out)
        bound = BoundCall(call, given_back, refresh, self.arrays.copy)
        mutable = [(taken[k].original, arrays[k]) for k in self._mutable if arrays[k] is not taken[k].original]
        copies = [
            (given_back[port.tensor], array)
            for port, array in zip(ports, results)
            if not self.arrays.shares(_kind(taken)) and port.updates is None and port.tensor not in (out or {})
        ]
        bound._write_back = (*mutable, *(finish or ()), *copies)
        bound._written = self._written_by(taken, out)
        return bound

    # -- inputs ----------------------------------------------------------------------------------

    def _readable(self, original: Array, port: Input) -> Array:
        """The caller's array in the port's layout."""
        return original if port.layout is None else self.arrays.take(original, port).array

    def _take(self, given: Mapping[str, object]) -> tuple[list[Taken], dict[str, int]]:
        values = arrange(self.arguments, given, "input")
        taken = [self.arrays.take(v, p) for v, p in zip(values, self.arguments)]
        for name, t in zip(self._names, taken):
            if t.copied:
                self.copies[name] = self.copies.get(name, 0) + 1
        return taken, self._sizes(tuple(t.original.shape for t in taken))

    def _by_name(self, inputs: tuple[object, ...], named: Mapping[str, object]) -> Mapping[str, object]:
        if not inputs:
            return named
        first: Mapping[str, object]
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            first = inputs[0]
        elif len(inputs) > len(self._names):
            raise fail(
                "InputMismatch",
                "inputs",
                f"{len(inputs)} are given, the program takes {len(self._names)}",
                f"the inputs are {', '.join(self._names) or 'none'}",
            )
        else:
            first = dict(zip(self._names, inputs))
        both = first.keys() & named.keys()
        if both:
            raise fail("InputMismatch", sorted(both)[0], "the input is given twice", "give it once")
        return {**first, **named}

    def _sizes(self, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        sizes = self._bound.get(shapes)
        if sizes is None:
            sizes = self.program.bind("main", dict(zip(self._names, shapes)), self.sizes)
            if len(self._bound) > 4096:
                self._bound.clear()
            self._bound[shapes] = sizes
        self._last_sizes = sizes
        return sizes

    def _separate(self, taken: Sequence[Taken]) -> list[Array]:
        """The arrays, copied where an input shares memory with one that is updated in place. Raises InputMismatch for two
        updated ones."""
        arrays: list[Array] = [t.array for t in taken]
        for k in self._mutable:
            for j, other in enumerate(arrays):
                if j == k:
                    continue
                if j in self._mutable and self.arrays.overlaps(taken[k].original, taken[j].original):
                    raise fail(
                        "InputMismatch",
                        self._names[k],
                        f"it shares memory with {self._names[j]}, and both are updated in place",
                        "pass separate arrays",
                    )
                if self.arrays.overlaps(arrays[k], other):
                    arrays[j] = self.arrays.aligned_copy(other, self.arguments[j].dtype, max(1, self.arguments[j].alignment))
                    self.copies[self._names[j]] = self.copies.get(self._names[j], 0) + 1
        return arrays

    def _written_by(self, taken: Sequence[Taken], out: Mapping[str, object] | None) -> tuple[object, ...]:
        """Values of the caller that a call writes, if they are of another library than numpy."""
        values = (*(taken[k].source for k in self._mutable), *(out or {}).values())
        return tuple(v for v in values if not isinstance(v, np.ndarray))

    def _write_back(self, taken: list[Taken], arrays: list[Array]) -> None:
        """Copy updated inputs that were copied on the way in back to the caller's arrays."""
        for k in self._mutable:
            if arrays[k] is not taken[k].original:
                self.arrays.copy(taken[k].original, arrays[k])

    # -- outputs ---------------------------------------------------------------------------------

    def _placed(self, results: Sequence[Array], given: Collection[str]) -> Sequence[Array]:
        """The results, copied where one that the caller gave no array for lies at no multiple of its alignment."""
        if not any(p.alignment for p in self.signature.outputs):
            return results
        return [
            self.arrays.aligned_copy(array, port.dtype, port.alignment)
            if port.alignment and port.tensor not in given and self.arrays.address(array) % port.alignment
            else array
            for port, array in zip(self.signature.outputs, results)
        ]

    def _given_outputs(
        self, out: Mapping[str, object], taken: Sequence[Taken], arrays: list[Array], sizes: Mapping[str, int]
    ) -> tuple[tuple[Array | None, ...], list[tuple[Array, Array]]]:
        """(arrays for the program to write, (caller's array, ours) for arrays that cannot be written directly)."""
        ports: tuple[Output, ...] = self.signature.outputs
        values = arrange(ports, mapping_argument(out, "out"), "output", all=False)
        outputs: list[Array | None] = []
        finish: list[tuple[Array, Array]] = []
        seen: list[Array] = []
        for port, value in zip(ports, values):
            if value is None:
                outputs.append(None)
                continue
            array = self.arrays.take_output(value, port)
            self._check_output(port, array, sizes)
            if port.updates is not None:
                raise fail("InputMismatch", port.tensor, f"the output updates {port.updates} in place", "leave it out of out=")
            for other in seen:
                if self.arrays.overlaps(array, other):
                    raise fail("InputMismatch", port.tensor, "two arrays of out= share memory", "pass separate arrays")
            for k in self._mutable:
                if self.arrays.overlaps(array, taken[k].original):
                    why = f"out= shares memory with {self._names[k]}, which is updated in place"
                    raise fail("InputMismatch", port.tensor, why, "pass separate arrays")
            seen.append(array)
            if self.arrays.writable_in_place(array) and not any(self.arrays.overlaps(array, a) for a in arrays):
                outputs.append(array)
            else:
                made = self.arrays.empty(array.shape, port.dtype)
                outputs.append(made)
                finish.append((array, made))
                self.copies[port.tensor] = self.copies.get(port.tensor, 0) + 1
        return tuple(outputs), finish

    def _check_output(self, port: Output, array: Array, sizes: Mapping[str, int]) -> None:
        for axis, size in enumerate(port.shape):
            if free_vars(size) <= sizes.keys() and evaluate(size, sizes) != array.shape[axis]:
                raise fail(
                    "InputMismatch",
                    port.tensor,
                    f"out= has shape {list(array.shape)}, axis {axis} has to be {size} = {evaluate(size, sizes)}",
                    "pass an array of the output's shape",
                )

    def _give(
        self, taken: list[Taken], arrays: list[Array], results: Sequence[Array], out: Mapping[str, object] | None
    ) -> dict[str, object]:
        kind = _kind(taken)
        sources = {id(a): t.source for a, t in zip(arrays, taken)} if self._mutable else {}
        given: dict[str, object] = {}
        for port, array in zip(self.signature.outputs, results):
            if out is not None and port.tensor in out:
                given[port.tensor] = out[port.tensor]
            elif port.updates is not None and id(array) in sources:
                given[port.tensor] = sources[id(array)]
            else:
                given[port.tensor] = self.arrays.give(array, kind)
        return given

    # -- facts -----------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        """Bytes of constants and arena (with and without reuse) at the sizes of the last call, and the number of copies."""
        sizes = self._last_sizes
        if sizes is None:
            decided = {**self.signature.defaults, **self.sizes}
            needed = set(symbols(self.signature))
            sizes = decided if needed <= decided.keys() else None
        found: Memory = self.program.memory(sizes) if sizes is not None else {}
        return {**found, "copies": dict(self.copies)}


def _kind(taken: Sequence[Taken]) -> Kind:
    """The kind of the outputs: numpy's, unless an input is another library's."""
    return next((t.kind for t in taken if t.kind != "numpy"), "numpy")
