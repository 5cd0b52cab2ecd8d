"""A compiled program that is called with tensors.

Arguments are read in place, results are allocated by PyTorch with the strides its metadata promises, and the
entry gets bare addresses. Sizes come from SymInt arguments and shapes; everything derived from one tuple of sizes is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tatami.api import CompiledFunction
from tatami.backends.torch_parameters import Parameters
from tatami.backends.torch_report import GraphReport
from tatami.core.algebra.visit import concrete, evaluate, free_vars
from tatami.core.diagnostic import TatamiError, diagnostic, fail
from tatami.core.expr import Expr
from tatami.core.signature import Input
from tatami.core.sizes.binding import solve
from tatami.runtime.arrays import to_numpy
from tatami.runtime.cpu.native_code import Sized
from tatami.runtime.cpu.program import CpuProgram
from tatami.runtime.cuda.arrays import ALIGNMENT
from tatami.runtime.cuda.device_array import DeviceArray
from tatami.runtime.cuda.program import CudaProgram
from tatami.runtime.cuda.program import Sized as SizedOnDevice
from tatami.runtime.layouts import row_major_strides
from tatami.torch.dtypes import TO_TORCH
from tatami.torch.imported import Argument, Given, Imported, Result, View
from tatami.torch.sizes import in_order

KEPT_THREADS = 4
"""Maximum number of numbers of threads for which a program is kept, each with packed parameters of its own."""
KEPT_SIZES = 1024
"""Maximum number of tuples of sizes for which derived values are kept."""


@dataclass(frozen=True)
class Allocation:
    """How one result is made at concrete sizes. `plain`: row by row; `copied`: the program writes `lies` row by row, and
    PyTorch requires other strides."""

    lies: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    plain: bool
    copied: bool


@dataclass
class Bound:
    """Everything about a call that depends only on sizes."""

    sizes: dict[str, int]
    at: Sized | SizedOnDevice | None
    results: tuple[Allocation, ...]
    outputs: tuple[Any, ...]
    """Sizes among the outputs, and shape, strides and offset of views of arguments, at their positions."""


@dataclass
class Threaded:
    """A program for one number of threads: its calls by sizes, and its held parameters, None without any. `only`: the call of a
    program without open sizes."""

    program: object
    parameters: Parameters | None
    bound: dict[tuple[int, ...], Bound]
    only: Bound | None = None


class OutOfRange(TatamiError, IndexError, RuntimeError):
    """An index outside its axis. Eager operators raise either IndexError or RuntimeError; handlers of both catch this."""


class DivisionByZero(TatamiError, ZeroDivisionError, RuntimeError):
    """An integer divided by 0. Eager operators raise RuntimeError, Python's numbers ZeroDivisionError."""


RAISED = {"IndexOutOfRange": OutOfRange, "DivisionByZero": DivisionByZero}
"""Kind of diagnostic -> class of the exception that eager code expects."""


class TorchProgram:
    """A program called with the arguments of the fx graph, in order; it returns the values of the graph's output. `names`:
    position -> name of a parameter. `freeze`: parameters change only by writes that PyTorch counts. `threads`: None for
    PyTorch's number at the time of each call."""

    def __init__(
        self,
        imported: Imported,
        function: CompiledFunction,
        report: GraphReport,
        names: Mapping[int, str],
        freeze: bool,
        threads: int | None,
    ) -> None:
        self.imported = imported
        self.function = function
        self.report = report
        self._names, self._freeze, self._threads = names, freeze, threads
        self._by_threads: dict[int, Threaded] = {}
        by_name = {a.name: a for a in imported.arguments}
        self._taken: tuple[Argument | None, ...] = tuple(by_name.get(i.tensor) for i in function.arguments)
        """Per input of the program its argument; None is the key of random numbers."""
        ports = [o.tensor for o in function.signature.outputs if o.updates is None]
        wholes = (o.of for o in imported.outputs if isinstance(o, View))
        told = (*wholes, imported.found, *(c.info for c in imported.checks))
        results = {r.name: r for r in (*imported.outputs, *told) if isinstance(r, Result)}
        self._results: tuple[Result, ...] = tuple(results[p] for p in ports)
        self._dtypes = tuple(TO_TORCH[o.dtype] for o in function.signature.outputs if o.updates is None)
        self._place = place = {r.name: k for k, r in enumerate(self._results)}
        self._places = tuple(place[o.name] if isinstance(o, Result) else None for o in imported.outputs)
        self._checks = tuple((place[c.info.name], c.name, c.is_matrix) for c in imported.checks)
        self._found = place[imported.found.name] if imported.found is not None else None
        report.checks += len(imported.checks) + len(imported.forbidden)
        self._sources = self._size_sources()
        program = function.program
        self._fast = isinstance(program, CpuProgram | CudaProgram) and "main" not in program.layouts.hosted
        self._device = device_of(program)
        self._on_cpu = self._device.type == "cpu"

    def _threaded(self) -> Threaded:
        """The program for the number of threads of this call."""
        count = torch.get_num_threads() if self._threads is None else self._threads
        found = self._by_threads.get(count)
        if found is not None:
            return found
        program = self.function.program
        parameters = None
        if isinstance(program, CpuProgram):
            program = program if program.threads == count else program.with_threads(count)
            if any(p.storage == "held" for p in self.function.arguments):
                given = (self.function.arguments, self._taken, self._names, self.report, self._freeze)
                parameters = Parameters(program, *given)
        while len(self._by_threads) >= KEPT_THREADS:
            self._by_threads.pop(next(iter(self._by_threads)), None)
        return self._by_threads.setdefault(count, Threaded(program, parameters, {}))

    # -- sizes -----------------------------------------------------------------------------------
    def _size_sources(self) -> tuple[tuple[Expr, int, int], ...]:
        """(size, placeholder, axis or -1) for every place that decides a size which is not a number, each size once."""
        found: dict[Expr, tuple[Expr, int, int]] = {}
        for position, size in self.imported.sizes.items():
            found.setdefault(size, (size, position, -1))
        for port, argument in zip(self.function.arguments, self._taken):
            if argument is None:
                continue
            for k, size in enumerate(port.shape):
                axis = k if argument.order is None else argument.order[k]
                found.setdefault(size, (size, argument.position, axis))
        return tuple(s for s in found.values() if s[0].as_int() is None)

    def _bind(self, own: Threaded, args: Sequence[Any]) -> Bound:
        key = tuple(args[p] if axis < 0 else args[p].shape[axis] for _, p, axis in self._sources)
        bound = own.bound.get(key)
        if bound is None:
            sizes: dict[str, int] = {}
            solve([(size, int(value), "") for (size, _, _), value in zip(self._sources, key)], sizes)
            bound = self._at(own.program, sizes)
            if len(own.bound) >= KEPT_SIZES:
                own.bound.clear()
            own.bound[tuple(map(int, key))] = bound
        return bound

    def _at(self, program: object, sizes: dict[str, int]) -> Bound:
        self._check_sizes(sizes)
        at = program.sized("main", sizes) if self._fast and isinstance(program, CpuProgram | CudaProgram) else None
        results = tuple(_allocation(r, sizes) for r in self._results)
        outputs = tuple(_at_sizes(o, sizes) for o in self.imported.outputs)
        return Bound(sizes, at, results, outputs)

    def _check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Check the shapes and the recorded assumptions for these sizes. Raises TatamiError."""
        shapes = {
            port.tensor: concrete(port.shape, sizes)
            for port in self.function.arguments
            if all(free_vars(s) <= sizes.keys() for s in port.shape)
        }
        self.function.program.bind("main", shapes, sizes)

    # -- calls -----------------------------------------------------------------------------------
    def __call__(self, *args: Any) -> Any:
        own = self._threaded()
        bound = own.only
        if bound is None:
            bound = self._bind(own, args)
            if not self._sources:
                own.only = bound
        program: Any = own.program
        held: Mapping[int, torch.Tensor] = {}
        if own.parameters is not None:
            program, held = own.parameters.prepared(args)
        tensors = [held[k] if k in held else self._readable(args, a) for k, a in enumerate(self._taken)]
        made = [self._allocate(r, d) for r, d in zip(bound.results, self._dtypes)]
        try:
            self._run(program, bound, tensors, made)
        except TatamiError as error:
            raised = RAISED.get(error.diagnostics[0].kind)
            if raised is None:
                raise
            raise raised(*error.diagnostics) from error
        if self._found is not None and (found := int(made[self._found])):
            what = self.imported.forbidden[found - 1]
            raise RAISED[what.kind](diagnostic(what.kind, what.at, what.why, what.suggestion))
        for k, name, is_matrix in self._checks:
            torch.ops.aten._linalg_check_errors(made[k], name, is_matrix=is_matrix)
        for t, a in zip(tensors, self._taken):
            if a is not None and a.updated and t is not args[a.position]:
                in_order(args[a.position], a.order).copy_(t)
        for k, r in enumerate(bound.results):
            if r.copied:
                made[k] = _spread(made[k], r, self._dtypes[k])
                self._count(self._results[k].name)
        values = [
            made[k] if k is not None else self._taken_from(args, made, o, found)
            for k, o, found in zip(self._places, self.imported.outputs, bound.outputs)
        ]
        return values[0] if self.imported.single else values

    def _taken_from(self, args: Sequence[Any], made: Sequence[torch.Tensor], o: Given, found: Any) -> Any:
        """An output that is not a result of the program: an argument, a view, or a size."""
        if isinstance(o, int):
            return args[o]
        if isinstance(o, View):
            shape, strides, offset = found
            source: torch.Tensor = made[self._place[o.of.name]] if isinstance(o.of, Result) else args[o.of]
            return torch.as_strided(source, shape, strides, source.storage_offset() + offset)
        return found

    def _allocate(self, r: Allocation, dtype: torch.dtype) -> torch.Tensor:
        """Memory for a result, from PyTorch's own allocator."""
        if r.plain or r.copied:
            return torch.empty(r.lies, dtype=dtype, device=self._device)
        return torch.empty_strided(r.shape, r.strides, dtype=dtype, device=self._device)

    def _run(self, program: Any, bound: Bound, tensors: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        if bound.at is not None:
            addresses = [t.data_ptr() for t in tensors]
            addresses += [t.data_ptr() for t in made]
            program.call("main", bound.at, addresses)
        else:
            self._run_slowly(program, bound, tensors, made)

    def _readable(self, args: Sequence[Any], a: Argument | None) -> torch.Tensor:
        """The argument in the form that the program reads: itself if it lies as its metadata promised, else a copy."""
        if a is None:
            return torch.randint(-(2**63), 2**63 - 1, (), device=self._device)
        tensor: torch.Tensor = args[a.position]
        if a.rows is not None:
            whole = a.rows.around(tensor)
            if whole is None:
                self._count(a.name)
            return a.rows.copied(tensor) if whole is None else whole
        if not (self._on_cpu and tensor.is_cpu) and tensor.device != self._device:  # asked last: it makes an object
            tensor = tensor.to(self._device)  # a number that PyTorch keeps on the host while tensors are on a GPU
        lies = tensor if a.order is None else in_order(tensor, a.order)
        if not self._on_cpu and tensor.data_ptr() % ALIGNMENT:
            self._count(a.name)
            return lies.clone(memory_format=torch.contiguous_format)
        if _lies_plainly(lies):
            return tensor
        self._count(a.name)
        return lies.contiguous().resolve_neg()

    def _count(self, name: str) -> None:
        self.report.copies[name] = self.report.copies.get(name, 0) + 1

    def _run_slowly(self, program: Any, bound: Bound, tensors: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        """Run through numpy arrays: programs with Python steps, and the reference."""
        if isinstance(program, CudaProgram):
            self._run_steps_on_device(program, bound, tensors, made)
            return
        arrays = []
        for tensor, a, port in zip(tensors, self._taken, self.function.arguments):
            lies = tensor if a is None else in_order(tensor, a.order)
            lies = lies.view(torch.uint64) if a is None else lies
            arrays.append(to_numpy(lies, port)[0])
        ports = iter(enumerate(made))
        outputs: list[np.ndarray | None] = []
        for o in self.function.signature.outputs:
            if o.updates is not None:
                outputs.append(None)
                continue
            k, array = next(ports)
            outputs.append(to_numpy(_as_written(array, bound.results[k]), Input(o.tensor, o.dtype, o.shape))[0])
        program.run("main", arrays, bound.sizes, outputs)

    def _run_steps_on_device(
        self, program: CudaProgram, bound: Bound, tensors: Sequence[torch.Tensor], made: Sequence[torch.Tensor]
    ) -> None:
        """Run a GPU program that has Python steps, on the tensors' own memory as arrays of the device."""
        arrays = []
        for tensor, a, port in zip(tensors, self._taken, self.function.arguments):
            shape = tuple(tensor.shape if a is None else in_order(tensor, a.order).shape)
            arrays.append(DeviceArray(program.device, tensor.data_ptr(), shape, port.dtype, tensor))
        ports = iter(enumerate(made))
        outputs: list[DeviceArray | None] = []
        for o in self.function.signature.outputs:
            if o.updates is not None:
                outputs.append(None)
                continue
            k, tensor = next(ports)
            outputs.append(DeviceArray(program.device, tensor.data_ptr(), bound.results[k].lies, o.dtype, tensor))
        program.run("main", arrays, bound.sizes, outputs)


def _lies_plainly(tensor: torch.Tensor) -> bool:
    """True if the bytes in memory are the elements in row-major order."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def device_of(program: object) -> torch.device:
    """The device of a program's arguments and results."""
    return torch.device("cuda", program.device.ordinal) if isinstance(program, CudaProgram) else torch.device("cpu")


def _spread(made: torch.Tensor, r: Allocation, dtype: torch.dtype) -> torch.Tensor:
    """The program's result copied to memory with the promised strides; an axis of stride 0 is one element there."""
    out = torch.empty_strided(r.shape, r.strides, dtype=dtype, device=made.device)
    torch.as_strided(out, r.lies, r.strides).copy_(made)
    return out


def _as_written(tensor: torch.Tensor, r: Allocation) -> torch.Tensor:
    """The memory of a result as the row-major array that the program writes."""
    return tensor if r.plain or r.copied else torch.as_strided(tensor, r.lies, row_major_strides(r.lies))


def _at_sizes(o: Given, sizes: Mapping[str, int]) -> Any:
    if isinstance(o, Expr):
        return int(evaluate(o, sizes))
    if isinstance(o, View):
        shape, strides = (concrete(of, sizes) for of in (o.shape, o.strides))
        return shape, strides, int(evaluate(o.offset, sizes))
    return None


def _allocation(result: Result, sizes: Mapping[str, int]) -> Allocation:
    unknown = sorted({n for s in result.shape for n in free_vars(s)} - sizes.keys())
    if unknown:
        raise fail("UnboundSymbol", result.name, f"no argument decides its size {unknown[0]}", "pass the size as an argument")
    shape = concrete(result.shape, sizes)
    strides = concrete(result.strides, sizes)
    stored = concrete(result.stored, sizes)
    lies = stored if result.order is None else tuple(stored[a] for a in result.order)
    plain = result.order is not None and stored == shape and list(result.order) == list(range(len(shape)))
    return Allocation(lies, shape, strides, plain, result.order is None)
