"""`main.c` and its data: Philox inputs, the reference's outputs for them, the constants as one file (spec 5 §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tatami.c.print_main import Memory, constant_names, print_main
from tatami.core.algebra.visit import concrete, free_vars
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.numbers.compared import Expected
from tatami.core.numbers.numerics import philox
from tatami.core.signature import Signature, symbols
from tatami.core.sizes.binding import bind_sizes
from tatami.core.tensor import numpy_dtype
from tatami.cu.ir import Source as CudaSource
from tatami.cu.print_main import constant_places
from tatami.cu.print_main import print_main as print_cuda_main
from tatami.execution.arena import Planner
from tatami.execution.frames import Layouts
from tatami.execution.ir import ExecutionPlan
from tatami.plan.usual_sizes import USUAL

Array: TypeAlias = np.ndarray
SAMPLES = 64
"""Number of elements of each output that the main compares."""
RELATIVE = {DType.fp16: 2e-2, DType.bf16: 1e-1, DType.fp32: 1e-3, DType.fp64: 1e-6}
"""Type of an output -> relative tolerance of the main."""


def philox_fill(dtype: DType, shape: tuple[int, ...], key: int) -> Array:
    """Input number `key` with the values that `main.c` fills it with: multiples of 1/64 in [-1, 1), integers 0 or 1."""
    count = int(np.prod(shape, dtype=np.int64))
    words = philox(key, np.arange((count + 3) // 4)).reshape(-1)[:count]
    if dtype.is_float:
        values = (np.right_shift(words, 25).astype(np.float32) - 64) / 64
    else:
        values = words & 1
    filled: Array = values.astype(numpy_dtype(dtype)).reshape(shape)
    return filled


def sizes_of_case(signature: Signature, sizes: Mapping[str, int], least: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes by symbol that are not small: those given; then, for models whose operations need larger sizes, multiples of
    `least`, for which quotients of a symbol have a few elements; last the usual size of all."""
    yield dict(sizes)
    for factor in (1, 2, 4):
        yield {**{n: factor * size for n, size in least.items()}, **signature.defaults, **sizes}
    yield {**dict.fromkeys(symbols(signature), USUAL), **least, **signature.defaults, **sizes}


def small_sizes(signature: Signature) -> dict[str, int]:
    """Symbol -> its default, else a small number that differs from axis to axis."""
    return {**{name: 3 + 2 * k for k, name in enumerate(symbols(signature))}, **signature.defaults}


@dataclass(frozen=True)
class StandAlone:
    """A generated main. `file`: its name. `constants`: names of the constants in `constants.bin`, in order."""

    file: str
    text: str
    constants: tuple[str, ...]


def stand_alone_main(
    execution: Module[ExecutionPlan],
    reference: Callable[[dict[str, Array], dict[str, int]], Mapping[str, object]],
    cases: Iterable[Mapping[str, int]] = ({},),
    threads: int = 1,
) -> StandAlone:
    """`main.c` of a program for the CPU, at the first of `cases`, sizes by symbol, that its operations take.
    `reference(inputs, sizes)` returns the outputs."""
    layouts = Layouts(execution)
    bound, expected = _case(execution, layouts, reference, cases)
    planner = Planner(layouts, threads)
    memory = {}
    for program, values in bound.items():
        arena = planner.plan(program, values)
        memory[program] = Memory(arena.bytes, arena.offsets)
    text = print_main(execution, bound, memory, expected, threads)
    return StandAlone("main.c", text, constant_names(execution))


def stand_alone_cuda_main(
    source: CudaSource,
    execution: Module[ExecutionPlan],
    reference: Callable[[dict[str, Array], dict[str, int]], Mapping[str, object]],
    cases: Iterable[Mapping[str, int]] = ({},),
) -> StandAlone:
    """`main.cu` of a program for a GPU, like `main.c`."""
    layouts = Layouts(execution)
    bound, expected = _case(execution, layouts, reference, cases)
    text = print_cuda_main(source, layouts.module, bound["main"], expected, bound.get("setup"))
    return StandAlone("main.cu", text, tuple(constant_places(execution)))


def _case(
    execution: Module[ExecutionPlan],
    layouts: Layouts,
    reference: Callable[[dict[str, Array], dict[str, int]], Mapping[str, object]],
    cases: Iterable[Mapping[str, int]],
) -> tuple[dict[str, dict[str, int]], tuple[Expected, ...]]:
    """(program -> sizes, the reference's outputs for Philox inputs). Raises TatamiError: the fault of the first case,
    if none can be."""
    plan = layouts.module.main
    signature = plan.signature
    kinds = {b.id: b.kind for b in plan.buffers}
    ports = [p for id, p in zip(plan.input_buffers, signature.inputs) if kinds[id] == "input"]
    fault: TatamiError | None = None
    for sizes in cases:
        chosen = {**small_sizes(signature), **sizes}
        shapes = {p.tensor: concrete(p.shape, chosen) for p in ports}
        try:
            main = bind_sizes(signature, shapes, {k: v for k, v in chosen.items() if not _is_decided(k, signature)})
        except TatamiError as error:
            fault = fault or error
            continue
        break
    else:
        raise fault or fail("MeaningMissing", "main", "no sizes are given", "give sizes of a case")
    bound = {"main": main}
    inputs = {p.tensor: philox_fill(p.dtype, shapes[p.tensor], k) for k, p in enumerate(ports)}
    results = reference({n: a.copy() for n, a in inputs.items()}, bound["main"])
    expected = tuple(_expected(np.asarray(results[p.tensor]), p.dtype) for p in signature.outputs)
    if "setup" in execution.programs:
        setup = execution.programs["setup"].signature
        constants = {name: tensor.shape for name, tensor in execution.constants.items()}
        bound["setup"] = bind_sizes(setup, {**constants, **shapes})
    return bound, expected


def _is_decided(symbol: str, signature: Signature) -> bool:
    return any(s.as_name() == symbol for p in signature.inputs for s in p.shape if symbol in free_vars(s))


def _expected(values: Array, dtype: DType) -> Expected:
    flat = values.astype(np.float64).reshape(-1)
    step = max(1, flat.size // SAMPLES)
    positions = tuple(range(0, flat.size, step))[:SAMPLES]
    with np.errstate(all="ignore"):
        finite = flat[np.isfinite(flat)]
        rms = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        total, magnitude = float(flat.sum()), float(np.abs(flat).sum())
    relative = RELATIVE.get(dtype, 0.0)
    absolute = relative * 1e-2 * rms if dtype.is_float else 0.0
    return Expected(positions, tuple(float(flat[p]) for p in positions), total, magnitude, relative, absolute)
