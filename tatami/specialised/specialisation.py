"""The shape set of a model: its programs for the sizes of calls, and for their values if the structure depends on them.

A model whose sizes stay open has one program that serves all of them, if the importer can express it: sizes that could
be equal are assumed to be, and checked at the call. A call that breaks an assumption, and a model without such a program,
get a program for the sizes and values of the call: imported with numbers, compiled at the first such call, kept (the least
recently used is dropped when there are too many), and found in the cache by a later process. The sizes that a broken assumption
is about are fixed first, and the others stay open; a program that fixes all of them is the last resort (decision 0072).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.module import Module
from tatami.core.sizes.binding import PartialShape
from tatami.core.sizes.conditions import equation_text
from tatami.frontend.ir import Graph
from tatami.specialised.broken_axes import Axes, broken_axes
from tatami.specialised.source_cache import import_source

if TYPE_CHECKING:
    from tatami.compiled_function import CompiledFunction
    from tatami.models import ImportedModel, Source

Key: TypeAlias = tuple[object, ...]
OF_SIZES = frozenset(["AxisAlignmentMismatch", "AxisSizeMismatch", "BroadcastMismatch", "InvalidSymbol"])
"""Kinds of faults of a call that a program for its own sizes may not have."""
OF_ARRAYS = frozenset(["InputMismatch", "OutOfMemory"])
"""Kinds of faults of a call that every program has."""
MAX_SPECIALISATIONS = 64
"""Default maximum number of programs that one function keeps for sizes of calls."""


def without_frames(error: TatamiError) -> TatamiError:
    """The error without its traceback, which would keep every frame that it went through, and with them the model's file."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


@dataclass
class Program:
    """One compilation of a model, and what it was specialised on. `seconds`: time to compile; `calls`: number of runs."""

    imported: ImportedModel
    function: CompiledFunction
    seconds: float
    calls: int = 0

    @property
    def host_steps(self) -> tuple[str, ...]:
        """Names of the routines that run in Python between kernels."""
        from tatami.execution.ir import Host

        plans = self.function.execution.programs.values()
        return tuple(i.op.routine for p in plans for i in p.instructions if isinstance(i.op, Host))

    @property
    def sizes_read(self) -> tuple[str, ...]:
        """Sizes that integers of the data decide and compiled code reads, without Python."""
        from tatami.execution.ir import Extent

        plans = self.function.execution.programs.values()
        return tuple(s for p in plans for i in p.instructions if isinstance(i.op, Extent) for s in i.op.new_symbols)

    @property
    def reads_sizes(self) -> bool:
        """True if integers of the data decide sizes, read by a Host step or by compiled code."""
        return "extent" in self.host_steps or bool(self.sizes_read)

    def run(self, source: Source, inputs: Mapping[str, object], out: Mapping[str, object] | None = None) -> dict[str, object]:
        """Output -> value, by the model's names and in its order. Raises TatamiError."""
        arrays, call = source.arguments_of(self.imported, inputs)
        results = self.function({a.tensor: arrays[a.tensor] for a in self.function.arguments}, out=out)
        self.calls += 1
        return dict(zip(source.outputs, source.results_of(self.imported, results, call), strict=True))


@dataclass(frozen=True)
class Policy:
    """The inputs on whose values a program is specialised; with `by_shape` also on the shapes of all others. `reads_sizes`:
    sizes that depend on data are read by Host steps; else their inputs are among the decisive."""

    decisive: tuple[str, ...] = ()
    by_shape: bool = False
    reads_sizes: bool = True
    axes: Axes = frozenset()
    """The axes whose sizes are fixed, where not all are."""


@dataclass
class ShapeSet:
    """The programs of one model, by what they were specialised on. Calls may come from several threads; one of them compiles
    at a time."""

    source: Source
    compile: Callable[[Module[Graph]], CompiledFunction]
    most: int = MAX_SPECIALISATIONS
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Size symbol -> number, in every program."""
    programs: OrderedDict[Key, Program] = field(default_factory=OrderedDict)
    usual: Policy = field(default_factory=Policy)
    """The policy of the last program that served sizes for which none was refused."""
    seconds: float = 0.0
    """Time spent on compiling, in seconds."""
    made: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _policies: dict[Key, Policy] = field(default_factory=dict)
    """Shapes of all inputs -> the policy that served them if the usual one did not."""
    _overriding: dict[frozenset[str], ShapeSet] = field(default_factory=dict)
    _extended: dict[Policy, Policy] = field(default_factory=dict)
    """Policy -> the policy with more decisive inputs, whose values the import turned out to need."""
    _refused: dict[Policy, TatamiError] = field(default_factory=dict)
    """Policy -> the error of its import, which fails for every call."""

    def named(self, inputs: object) -> dict[str, object]:
        """Input -> value, from a mapping or a sequence. Raises InputMismatch."""
        names = self.source.names
        others = {n for n in inputs if n not in names} if isinstance(inputs, Mapping) else set()
        if not others <= self.source.overridable:
            strange = min(others - self.source.overridable)
            raise fail("InputMismatch", strange, "the model has no such input", f"the inputs are {', '.join(names)}")
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
            if len(values) > len(names):
                raise fail("InputMismatch", "inputs", f"{len(values)} values for {len(names)} inputs", "give one for each")
            given = dict(zip(names, values, strict=False))
        for name in names:
            if name not in given:
                raise fail("InputMismatch", name, "the input is not given", f"the inputs are {', '.join(names)}")
        return given

    def run(
        self,
        given: Mapping[str, object],
        out: Mapping[str, object] | None = None,
        first: TatamiError | None = None,
        axes: Axes = frozenset(),
    ) -> dict[str, object]:
        """Output -> value, by a program that exists or is compiled for this call. `first`: the error of the program that
        serves all sizes; `axes`: those that its broken assumptions are about. Raises TatamiError: `first`, if no program serves
        the call."""
        passed = frozenset(given) - frozenset(self.source.names)
        if passed:
            return self.overriding(passed).run(given, out, first)
        shapes = self.shapes_of(given)
        kept = self._policies.get(shapes)
        if kept is not None:
            return self.program(given, kept).run(self.source, given, out)
        attempts = list(self._attempts()[first is not None :])
        if axes:
            attempts.insert(0, replace(self.usual, axes=axes))
        while attempts:
            policy = attempts.pop(0)
            if policy in self._refused:
                first = first or self._refused[policy]
                continue
            try:
                program = self.program(given, policy)
            except TatamiError as error:
                first = first or error
                if not self._may_help(error, policy):
                    raise first from None
                if policy == Policy(reads_sizes=policy.reads_sizes):  # the program is independent of this call
                    self._refused[policy] = without_frames(error)
                continue
            try:
                results = program.run(self.source, given, out)
            except TatamiError as error:
                first = first or error
                if not self._may_help(error, policy, program):
                    raise first from None
                if not policy.axes and not policy.by_shape:
                    found = broken_axes(program.imported.module.main.signature, shapes_by_name(given))
                    attempts[:0] = [replace(policy, axes=found)] if found else []
                continue
            if first is not None:
                self._policies[shapes] = policy
            return results
        assert first is not None
        raise first

    def overriding(self, names: frozenset[str]) -> ShapeSet:
        """The shape set of programs that take these constants of the model as inputs."""
        with self._lock:
            if names not in self._overriding:
                source = self.source.overriding(names)
                self._overriding[names] = ShapeSet(source, self.compile, self.most, self.sizes)
            return self._overriding[names]

    def prepare(self) -> None:
        """Compile the program that is independent of calls, before the first one. Raises TatamiError if there is none."""
        self.program({}, self.usual)

    def shapes_of(self, given: Mapping[str, object]) -> Key:
        """The shapes of all inputs, in order, as a key."""
        return tuple(_shape(given[n]) for n in self.source.names)

    @property
    def is_specialised(self) -> bool:
        """True if a call needed a program for its own sizes or values."""
        return bool(self.usual.decisive or self.usual.by_shape or self._policies)

    def knows(self, shapes: Key) -> bool:
        """True if a call with these shapes was served by a program of its own."""
        return shapes in self._policies

    def program(self, given: Mapping[str, object], policy: Policy) -> Program:
        """The program of a policy for these inputs, compiled if it does not exist; inputs whose values the import needs are
        added to the decisive ones."""
        with self._lock:
            while True:
                policy = self._extended.get(policy, policy)
                fixed = {n: given[n] for n in policy.decisive}
                shapes = self._shapes(policy, {n: v for n, v in given.items() if n not in fixed})
                key = (*((n, *_content(v)) for n, v in fixed.items()), *shapes.items(), policy.reads_sizes)
                if key in self.programs:
                    self.programs.move_to_end(key)
                    return self.programs[key]
                try:
                    made = self._compiled(fixed, shapes, policy)
                except TatamiError as error:
                    more = self.source.decisive(error) - set(fixed)
                    if not more or not more <= set(given):
                        raise
                    extended = replace(policy, decisive=(*policy.decisive, *sorted(more)))
                    self._extended[policy] = extended
                    self.usual = extended if not policy.by_shape and not policy.axes else self.usual
                    continue
                while len(self.programs) >= max(self.most, 1):
                    self.programs.popitem(last=False)
                self.programs[key] = made
                return made

    def _shapes(self, policy: Policy, arrays: Mapping[str, object]) -> dict[str, PartialShape]:
        """The sizes that a policy fixes, None for each that stays open; of inputs with such sizes."""
        values: Mapping[str, Any] = arrays
        if policy.by_shape:
            return {n: np.shape(v) for n, v in values.items()}
        named = {n for n, _ in policy.axes}
        return {
            n: tuple(size if (n, a) in policy.axes else None for a, size in enumerate(np.shape(v)))
            for n, v in values.items()
            if n in named
        }

    def _compiled(self, fixed: Mapping[str, object], shapes: Mapping[str, PartialShape], policy: Policy) -> Program:
        start = time.perf_counter()
        make = partial(self.source.imported, fixed, shapes, self.sizes, policy.reads_sizes)
        is_of_call = bool(fixed or shapes or self.source.overrides)
        imported = make() if is_of_call else import_source(self.source, self.sizes, policy.reads_sizes, make)
        function = self.compile(imported.module)
        seconds = time.perf_counter() - start
        self.seconds += seconds
        self.made += 1
        return Program(imported, function, seconds)

    def _attempts(self) -> tuple[Policy, ...]:
        """Policies that may serve a call, in the order in which they are tried."""
        usual = self.usual
        by_shape = self.source.has_open_sizes
        tried = (usual, Policy(usual.decisive, by_shape, True), Policy(usual.decisive, by_shape, False))
        return tuple(dict.fromkeys(tried))

    def may_answer(self, error: TatamiError) -> bool:
        """True if a program for the sizes of a call may succeed where the program for all sizes failed with this error."""
        return self.most > 0 and all(d.kind in OF_SIZES for d in error.diagnostics)

    def _may_help(self, error: TatamiError, policy: Policy, program: Program | None = None) -> bool:
        """True if a more specialised program may succeed where this one, or its import, failed with this error."""
        if any(d.kind in OF_ARRAYS for d in error.diagnostics):
            return False
        if program is None:
            return policy.reads_sizes or not policy.by_shape
        return program.reads_sizes or (self.source.has_open_sizes and not policy.by_shape and self.may_answer(error))

    def explain(self) -> str:
        """The report as text: programs with their inputs, seconds to compile, and calls."""
        lines = [f"programs: {len(self.programs)}, {self.made} compiled in {self.seconds:.1f} s, at most {self.most} kept"]
        for program in self.programs.values():
            signature = program.function.signature
            takes = ", ".join(f"{i.tensor}[{', '.join(map(str, i.shape))}]" for i in program.function.arguments)
            lines.append(f"program for {takes or 'constants'}: {program.seconds:.1f} s, {program.calls} calls")
            lines += [f"specialised on {name} = {_brief(value)}" for name, value in program.imported.fixed.items()]
            lines += [f"assumed: {equation_text(e)}, for {e.at}" for e in signature.assumptions]
            lines += [f"Host step: {routine}" for routine in program.host_steps]
            lines += [f"size read by compiled code: {name}" for name in program.sizes_read]
        return "\n".join(lines)


def shapes_by_name(given: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """Input -> shape, for inputs that are arrays."""
    return {n: tuple(map(int, s)) for n, v in given.items() if (s := getattr(v, "shape", None)) is not None}


def _shape(value: object) -> object:
    """The shape of an array, or the shapes of a sequence's elements."""
    return tuple(_shape(v) for v in value) if isinstance(value, list | tuple) else getattr(value, "shape", None)


def _content(value: object) -> Key:
    """A key of what a program specialised on the value depends on: an array's content, a sequence's length and shapes."""
    if value is None:
        return ("absent",)
    if isinstance(value, list | tuple):
        return ("sequence", *((np.asarray(v).dtype.str, np.asarray(v).shape) for v in value))
    array = np.asarray(value)
    return (array.dtype.str, array.shape, array.tobytes())


def _brief(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return f"a sequence of {len(value)}"
    return np.array2string(np.asarray(value).reshape(-1), threshold=8, edgeitems=3)
