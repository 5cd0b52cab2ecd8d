"""Comparison of all stages that compute, on the same inputs: the first stage and element that differ (spec 3 §6.11, §13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.numbers.small_float import FORMATS
from tatami.core.signature import Signature
from tatami.core.tensor import dtype_of
from tatami.frontend.ir import Graph
from tatami.tiny.ir import CallOp, InputOp, Program

if TYPE_CHECKING:
    from tatami.compilation import Compilation

Arrays = Mapping[str, np.ndarray]

EPSILON = {DType.fp16: 2.0**-10, DType.bf16: 2.0**-7, **{d: 2.0**-f.mantissa for d, f in FORMATS.items()}}
"""Float type -> distance between 1 and the next number."""


@dataclass(frozen=True)
class Difference:
    """The worst element of one output beyond tolerance. `count`: number of elements beyond tolerance."""

    output: str
    index: tuple[int, ...]
    value: Any
    expected: Any
    count: int


@dataclass(frozen=True)
class Agreement:
    """The comparison of one output with its reference. `error`: relative norm of the difference; `difference`: None within
    tolerance."""

    output: str
    error: float
    worst: float
    difference: Difference | None


@dataclass(frozen=True)
class StageResult:
    """The outputs of one stage, compared. `skipped`: the reason why it was not run."""

    stage: str
    agreements: tuple[Agreement, ...]
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """True if the stage ran and every output agrees."""
        return not self.skipped and all(a.difference is None for a in self.agreements)


@dataclass
class Playback:
    """The comparison of all stages, in order."""

    results: list[StageResult] = field(default_factory=list)

    @property
    def first_divergence(self) -> StageResult | None:
        """The first stage that ran and differs; None if all agree."""
        return next((r for r in self.results if not r.ok and not r.skipped), None)


def compare(
    name: str, got: np.ndarray, expected: np.ndarray, dtype: DType | None = None, through: DType | None = None
) -> Agreement:
    """The comparison of `got` with `expected` (D2.15). Integers and bools exactly; floats: ``|d| <= rtol*|ref| +
    atol*rms(ref)`` and the relative norm, with 1e-3, 1e-5 and 1e-5 for fp32; 4, 4 and 2 times the epsilon of a 16-bit output.
    `through`: the least precise dtype that the output is computed through, if that is less precise than its own."""
    dtype = dtype or dtype_of(np.asarray(got)) or DType.fp32
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        whole = Difference(name, (), f"shape {got.shape}", f"shape {expected.shape}", 1)
        return Agreement(name, np.inf, np.inf, whole)
    if not dtype.is_float:
        wrong = got != expected
        return _agreement(name, got, expected, np.asarray(wrong), float(np.count_nonzero(wrong)), 0.0)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(b)
    if dtype.is_narrow_float:  # values beyond the format's range overflow to infinity
        limit = 65504.0 if dtype == DType.fp16 else 3.3895e38
        same |= np.isinf(a) & (np.abs(b) >= limit * (1 - EPSILON[dtype])) & (np.sign(a) == np.sign(b))
    with np.errstate(all="ignore"):
        d = np.where(same, 0.0, np.abs(a - b))
        scale = np.where(finite, np.abs(b), 0.0)
        norm = float(np.sqrt(np.sum(scale**2)))
        rms = norm / max(1.0, float(np.sqrt(b.size)))
        epsilon = max(EPSILON.get(dtype, 0.0), EPSILON.get(through or dtype, 0.0))
        rtol, atol, relative = (1e-3, 1e-5, 1e-5) if not epsilon else (4 * epsilon, 4 * epsilon, 2 * epsilon)
        wrong = ~same & ~(d <= rtol * scale + atol * rms)
        error = float(np.sqrt(np.sum(np.where(np.isfinite(d), d, 0.0) ** 2))) / norm if norm else float(np.max(d, initial=0.0))
    if not wrong.any() and error > relative and norm:
        wrong = d == d.max(initial=0.0)
    return _agreement(name, got, expected, wrong, error, float(np.max(d, initial=0.0)))


def _agreement(name: str, got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, error: float, worst: float) -> Agreement:
    if not wrong.any():
        return Agreement(name, error, worst, None)
    if got.dtype.kind in "iufV" and got.size:
        with np.errstate(all="ignore"):
            size = np.where(
                wrong, np.nan_to_num(np.abs(got.astype(np.float64) - expected.astype(np.float64)), nan=np.inf), -1.0
            )
        position = int(np.argmax(size))
    else:
        position = int(np.argmax(wrong))
    index = tuple(int(i) for i in np.unravel_index(position, got.shape)) if got.shape else ()
    return Agreement(name, error, worst, Difference(name, index, got[index], expected[index], int(np.count_nonzero(wrong))))


def compare_outputs(
    signature: Signature, got: Arrays, expected: Arrays, through: Mapping[str, DType] | None = None
) -> tuple[Agreement, ...]:
    """The comparison of every output of the signature. `through`: the result of `least_precise` for the module that was run."""
    through = through or {}
    return tuple(
        compare(o.tensor, got[o.tensor], expected[o.tensor], o.dtype, through.get(o.tensor)) for o in signature.outputs
    )


def least_precise(module: Module[object]) -> dict[str, DType]:
    """Output of `main` -> the least precise float dtype of a value that it depends on; inputs are exact in theirs.

    For graphs and tiny programs, whose nodes have dtypes; a called graph counts as a whole."""
    inside = {name: max(map(_epsilon, _dtypes(program)), default=0.0) for name, program in module.programs.items()}
    worst: dict[str, float] = {}
    edges, results = _edges(module.main)
    for names, operands, callees, dtypes in edges:
        before = max((worst.get(o, 0.0) for o in operands), default=0.0)
        called = max((inside[c] for c in callees if c in inside), default=0.0)
        worst.update(dict.fromkeys(names, max(before, called, *map(_epsilon, dtypes))))
    named = {epsilon: dtype for dtype, epsilon in EPSILON.items()}
    return {output: named[worst[value]] for output, value in results.items() if worst.get(value)}


def _epsilon(dtype: DType) -> float:
    return EPSILON.get(dtype, 0.0)


def _dtypes(program: object) -> list[DType]:
    return [d for _, _, _, dtypes in _edges(program)[0] for d in dtypes]


def _edges(
    program: object,
) -> tuple[list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[DType, ...]]], dict[str, str]]:
    """((results, operands, called programs, dtypes of the results) of each node, output -> its value)."""
    match program:
        case Graph():
            return [
                (n.outputs, n.inputs, tuple(v for v in n.attrs.values() if isinstance(v, str)), dtypes)
                for n in program.graph
                for dtypes in [tuple(program.tensors[o].dtype for o in n.outputs)]
            ], {o.tensor: o.tensor for o in program.signature.outputs}
        case Program():
            return [
                ((n.id,), n.src, n.op.targets if isinstance(n.op, CallOp) else (), (n.dtype,))
                for n in program.nodes
                if not isinstance(n.op, InputOp)
            ], {o.tensor: value for o, value in zip(program.signature.outputs, program.outputs, strict=True)}
        case _:
            return [], {}


def play_back(
    stages: Mapping[str, Module[object]],
    inputs: Arrays,
    sizes: Mapping[str, int],
    compiled: Arrays | None = None,
) -> Playback:
    """The comparison of `stages`, the existing values in order. The first that computes, in float64, is the reference.
    `compiled`: outputs of the compiled program."""
    from tatami.region.ir import Program as RegionProgram
    from tatami.stages import runner

    out = Playback()
    reference: Arrays | None = None
    signature: Signature | None = None
    through: dict[str, DType] = {}
    for name, module in stages.items():
        run = runner(name)
        if run is None:
            continue
        if reference is None:
            assert isinstance(module.main, Graph | Program | RegionProgram)
            signature, through = module.main.signature, least_precise(module)
            reference = run(module, dict(inputs), dict(sizes), mode="float64")
        got = run(module, dict(inputs), dict(sizes), mode="declared")
        assert signature is not None
        out.results.append(StageResult(name, compare_outputs(signature, got, reference, through)))
    if compiled is not None and reference is not None and signature is not None:
        out.results.append(StageResult("kernels", compare_outputs(signature, compiled, reference, through)))
    return out


def fetch(compilation: Compilation, names: Sequence[str], inputs: Arrays, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The values of nodes of `main` by id or name, each from the first stage that has it. Raises UnknownName."""
    from tatami.stages import runner

    found: dict[str, np.ndarray] = {}
    seen: dict[str, None] = {}

    def observe(program: str, name: str, value: object) -> None:
        if program == "main":
            seen.setdefault(name)
            if name in names:
                found.setdefault(name, np.asarray(value))

    for stage, module in compilation.values().items():
        run = runner(stage)
        if run is not None and set(names) - set(found):
            run(module, dict(inputs), dict(sizes), mode="declared", observe=observe)
    for name in names:
        if name not in found:
            near = get_close_matches(name[:200], seen, n=6, cutoff=0.5)
            advice = f"did you mean {' or '.join(near)}?" if near else f"some names: {', '.join(list(seen)[:12])}"
            raise fail("UnknownName", f"fetch {name[:200]}", "no stage has a value of that name", advice)
    return found
