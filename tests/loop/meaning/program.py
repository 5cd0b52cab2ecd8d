"""A program whose edited kernels are run as their document says, all other Regions by their own meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.expr import var
from tatami.core.kernel import Binding, is_met
from tatami.core.layout import MemRef, address, size_elements
from tatami.core.module import Module
from tatami.core.numbers.numerics import Mode, storage_dtype
from tatami.core.numbers.run_programs import Observe
from tatami.loop import ir
from tatami.region import run as region_run
from tatami.region.ir import Program, Region
from tatami.region.meaning.inlined_lets import clamped_shape
from tatami.region.meaning.region import run_region
from tests.loop.meaning.run import run, unwritten
from tests.loop.meaning.values import Array, NoMeaning

Edited = tuple[Binding, ir.Kernel]


class Undetermined(Exception):
    """A result that depends on the order of threads, or on memory that nothing wrote."""


def run_program(
    realised: Module[Program],
    loops: Module[ir.Program],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
    mode: Mode = "declared",
) -> dict[str, Array]:
    """The outputs of `main`. Raises Outside, TooLong, NoMeaning, Undetermined, and TatamiError of the program."""
    first, second = (_outputs(realised, loops, inputs, sizes, mode, turned) for turned in (False, True))
    for name, array in first.items():
        if not np.array_equal(array, second[name], equal_nan=array.dtype.kind not in "biu"):
            raise Undetermined(name)
    return first


def _outputs(
    realised: Module[Program],
    loops: Module[ir.Program],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
    mode: Mode,
    turned: bool,
) -> dict[str, Array]:
    with _loops_of_edited(_edited(realised, loops), turned):
        return region_run.run(realised, {n: a.copy() for n, a in inputs.items()}, dict(sizes), mode)


def _edited(realised: Module[Program], loops: Module[ir.Program]) -> dict[int, list[Edited]]:
    """The choices of each Region whose kernels are checked, as edited ones are, by the identity of the Region."""
    found: dict[int, list[Edited]] = {}
    for name, program in realised.programs.items():
        code = loops.programs[name]
        regions = {item.name: item for item in program.body if isinstance(item, Region)}
        for b in code.bindings:
            if any(code.kernels[o.kernel].extents for o in code.bindings if o.region == b.region):
                found.setdefault(id(regions[b.region]), []).append((b, code.kernels[b.kernel]))
    return found


@contextmanager
def _loops_of_edited(edited: Mapping[int, list[Edited]], turned: bool) -> Iterator[None]:
    def run_one(
        region: Region,
        tensors: Mapping[str, Array],
        sizes: Mapping[str, int],
        mode: Mode = "declared",
        observe: Observe | None = None,
        program: str = "main",
    ) -> dict[str, Array]:
        choices = edited.get(id(region))
        if choices is None:
            return run_region(region, tensors, sizes, mode, observe, program)
        binding, kernel = next((b, k) for b, k in choices if all(is_met(c, sizes) for c in b.conditions))
        return _by_loops(region, binding, kernel, tensors, sizes, mode, turned)

    region_run.run_region = run_one
    try:
        yield
    finally:
        region_run.run_region = run_region


def _by_loops(
    region: Region,
    binding: Binding,
    kernel: ir.Kernel,
    tensors: Mapping[str, Array],
    sizes: Mapping[str, int],
    mode: Mode,
    turned: bool,
) -> dict[str, Array]:
    names = (*(p.name for p in region.inputs), *(t.name for t in region.outputs))
    if binding.buffers != names:
        raise NoMeaning("a choice reads other operands than its Region")
    flat = {p.name: _flat(p.memref, np.asarray(tensors[p.name]), sizes, mode, turned) for p in region.inputs}
    for t in region.outputs:
        if t.updates in flat:
            flat[t.name] = flat[t.updates]
        else:
            flat[t.name] = _flat(t.memref, np.asarray(tensors[t.updates]) if t.updates else None, sizes, mode, turned)
    if run(kernel, [flat[n] for n in names], [int(evaluate(e, sizes)) for e in binding.sizes], mode, turned):
        raise NoMeaning("a fault of the kernel")
    return {t.name: flat[t.name][_places(t.memref, sizes)] for t in region.outputs}


def _places(m: MemRef, sizes: Mapping[str, int]) -> Array:
    """Position in memory of each element of a tensor."""
    shape = clamped_shape(m.shape, sizes)
    index = tuple(var(f"i{k}") for k in range(len(shape)))
    grid = {f"i{k}": g for k, g in enumerate(np.indices(shape))}
    return np.broadcast_to(np.asarray(evaluate(address(m.layout, m.shape, index), {**sizes, **grid}), np.int64), shape)


def _flat(m: MemRef, array: Array | None, sizes: Mapping[str, int], mode: Mode, turned: bool) -> Array:
    """A tensor as it lies in memory; None: memory that nothing has written."""
    count = max(0, int(evaluate(size_elements(m.layout, m.shape), sizes)))
    out = unwritten(storage_dtype(m.dtype, mode), count, turned)
    if array is not None:
        out[_places(m, sizes)] = array
    return out
