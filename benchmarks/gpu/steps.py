"""The steps of `make gpu`. Each writes a line of JSON per row as it goes, so that a step that is stopped keeps its rows."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import tatami as tt
from benchmarks.gpu.cases import Case, checked, timed, tiny
from benchmarks.gpu.lanes import compare
from benchmarks.gpu.places import Where, place
from benchmarks.gpu.speed import Contest, ceilings
from tatami.api import prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.codec import to_builtins
from tatami.core.tensor import numpy_dtype
from tatami.decisions import Decisions

Row: TypeAlias = dict[str, Any]


class Run:
    """The target, time and place of a step. `dry`: the emulated GPU in place of one, at tiny sizes."""

    def __init__(self, target: str, seconds: float, dry: bool) -> None:
        self.target = target
        self.dry = dry
        self.end = time.monotonic() + seconds
        self.where: Where = place(target)

    @property
    def arch(self) -> str:
        from tatami.targets import resolve_target

        return resolve_target(self.target).isa

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.end


def lanes(run: Run) -> Iterator[Row]:
    """Each function of the PTX header against the emulated machine."""
    yield from compare(run.where, run.arch, keep=not run.dry)


def kernels(run: Run, small: bool = False) -> Iterator[Row]:
    """Results against float64, on outputs that were poisoned."""
    for case in checked(small or run.dry):
        if run.is_late:
            yield {"name": case.name, "skipped": "no time left"}
            continue
        yield guarded(case.name, lambda case=case: check(run, case))  # type: ignore[misc]


def guarded(name: str, make: Callable[[], Row]) -> Row:
    """The row, or why there is none: a case that fails does not end the step."""
    try:
        return make()
    except Exception as error:
        return {"name": name, "ok": False, "why": f"{type(error).__name__}: {error}"[:800]}


def check(run: Run, case: Case) -> Row:
    f = tt.compile(case.make(), target=run.target)
    inputs = random_inputs(f, seed=hash_of(case.name))
    outputs = {p.tensor: run.where.poisoned([int(evaluate(s, {})) for s in p.shape], p.dtype) for p in f.signature.outputs}
    f(inputs, out=outputs)
    found = {n: np.asarray(o if isinstance(o, np.ndarray) else o.numpy(), np.float64) for n, o in outputs.items()}
    wanted = f.compilation.reference_run({n: a.astype(np.float64) for n, a in inputs.items()}, {})
    error = max(distance(found[n], np.asarray(wanted[n], np.float64)) for n in found)
    return {"name": case.name, "ok": error <= case.tolerance, "error": error, "tolerance": case.tolerance}


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """Norm of the error over the norm; not a number is infinitely far."""
    scale = float(np.linalg.norm(wanted)) or 1.0
    error = float(np.linalg.norm(found.reshape(wanted.shape) - wanted)) / scale
    return error if math.isfinite(error) else math.inf


def hash_of(name: str) -> int:
    return sum(ord(c) * (i + 1) for i, c in enumerate(name))


def random_inputs(f: Any, seed: int) -> dict[str, np.ndarray]:
    """Standard normal numbers: zeros would run faster and hide wrong indices."""
    rng = np.random.default_rng(seed)
    shapes = {p.tensor: ([int(evaluate(s, {})) for s in p.shape], numpy_dtype(p.dtype)) for p in f.arguments}
    return {name: rng.standard_normal(shape).astype(dtype) for name, (shape, dtype) in shapes.items()}


def sanitized(run: Run) -> Iterator[Row]:
    """The small cases under compute-sanitizer."""
    yield from kernels(run, small=True)


def limits(run: Run) -> Iterator[Row]:
    """Rates of the machine itself: copying, and a large matrix product of its own library."""
    yield from ceilings(run.target)


def speed(group: str) -> Callable[[Run], Iterator[Row]]:
    def step(run: Run) -> Iterator[Row]:
        for case in tiny(group) if run.dry else timed(group):
            if run.is_late:
                yield {"name": case.name, "skipped": "no time left"}
                continue
            yield guarded(case.name, lambda case=case: Contest(run.target, case).measure())  # type: ignore[misc]

    return step


def compiled_peers(run: Run) -> Iterator[Row]:
    """Cases against torch.compile, tuned as far as it goes (its products are Triton's templates or cuBLAS, whichever is faster)."""
    for case in tiny("memory") if run.dry else [c for g in ("memory", "gemm", "attention") for c in timed(g)[:2]]:
        if run.is_late:
            yield {"name": case.name, "skipped": "no time left"}
            continue
        yield guarded(case.name, lambda case=case: Contest(run.target, tuned(case)).measure())  # type: ignore[misc]


def tuned(case: Case) -> Case:
    """The case with one peer: the first, through torch.compile."""
    eager = next(iter(case.peers.values()))

    def peer(torch: Any, *tensors: Any) -> Any:
        made = compiled.get("it")
        if made is None:
            made = compiled["it"] = torch.compile(lambda *x: eager(torch, *x), mode="max-autotune-no-cudagraphs", dynamic=False)
        return made(*tensors)

    compiled: dict[str, Any] = {}
    return replace(case, peers={"torch.compile": peer})


def plans(run: Run) -> Iterator[Row]:
    """The best plans of the cost model for each product, run: a table of decisions."""
    from tatami.plan.choose_gpu import measurable
    from tatami.plan.ir import Guarded
    from tatami.plan.key import plan_key
    from tatami.plan.rename import kept_choices

    for case in tiny("gemm") if run.dry else timed("gemm"):
        compilation = prepare(case.make(), target=run.target)
        region = compilation.stages["region"].main.body[0]
        key = plan_key(region, compilation.target)
        for candidate in measurable(region, compilation.target, {})[: 2 if run.dry else 12]:
            if run.is_late:
                yield {"name": case.name, "skipped": "no time left"}
                return
            decision = Decisions(plans={key: candidate.plan})
            row = guarded(case.name, lambda d=decision, c=case: Contest(run.target, c, d).measure(peers=False))  # type: ignore[misc]
            yield {**row, "plan": candidate.line, "estimate": candidate.estimate["total"], "key": key,
                   "document": to_builtins(kept_choices((Guarded((), candidate.plan),), region))}  # fmt: skip


STEPS: Mapping[str, tuple[Callable[[Run], Iterator[Row]], float]] = {
    "limits": (limits, 20.0),
    "lanes": (lanes, 60.0),
    "kernels": (kernels, 80.0),
    "gemm": (speed("gemm"), 70.0),
    "memory": (speed("memory"), 30.0),
    "attention": (speed("attention"), 42.0),
    "gradient": (speed("gradient"), 18.0),
    "conv": (speed("conv"), 40.0),
    "plans": (plans, 55.0),
    "compiled": (compiled_peers, 45.0),
    "memcheck": (sanitized, 35.0),
    "racecheck": (sanitized, 35.0),
}
"""Steps by name, in order: the function, and the seconds it may take. Together they are under nine minutes."""


def run_step(name: str, target: str, dry: bool, out: Path, seconds: float) -> None:
    """One step in this process; rows go to `out` line by line."""
    step, _ = STEPS[name]
    with out.open("w") as file:
        for row in step(Run(target, seconds * 0.9, dry)):
            file.write(json.dumps(row) + "\n")
            file.flush()
