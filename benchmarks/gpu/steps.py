"""The steps of `make gpu`: the cases of each, in the order in which they are asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tatami as tt
from benchmarks.gpu.cases import Case, checked, timed, tiny
from benchmarks.gpu.first import maps_and_launches, memory_of, models, planted
from benchmarks.gpu.lanes import Tables
from benchmarks.gpu.places import Where, place
from benchmarks.gpu.speed import CEILINGS, Contest, ceiling
from benchmarks.gpu.worker import OneCase, Row, work
from tatami.api import prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.codec import to_builtins
from tatami.core.tensor import numpy_dtype
from tatami.decisions import Decisions
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import Guarded
from tatami.plan.key import plan_key
from tatami.plan.rename import kept_choices


class Run:
    """The target and place of a step. `dry`: the emulated GPU in place of one, at tiny sizes."""

    def __init__(self, target: str, dry: bool) -> None:
        self.target = target
        self.dry = dry
        self.where: Where = place(target)

    @property
    def arch(self) -> str:
        from tatami.targets import resolve_target

        return resolve_target(self.target).isa


def first(run: Run) -> list[OneCase]:
    """A launch and a tensor map: everything else stands on them."""
    return maps_and_launches(run.where, run.arch)


def one_of_each(run: Run) -> list[OneCase]:
    """A model of each kind, called three times at other addresses, against float64."""

    def row(make: Callable[[bool], tt.Graph], options: dict[str, Any]) -> Row:
        f = tt.compile(make(run.dry), target=run.target, **options)
        inputs = random_inputs(f, 1)
        wanted = f.compilation.reference_run({n: a.astype(np.float64) for n, a in inputs.items()}, {})
        errors = []
        for _ in range(3):
            made = f(inputs)
            errors.append(max(distance(memory_of(made[n]), np.asarray(wanted[n], np.float64)) for n in wanted))
        plans = [type(r.choices[0].plan).__name__ for r in f.compilation.stages["plan"].main.regions]
        return {"ok": max(errors) < 5e-3, "error": max(errors), "plan": plans}

    return [OneCase(name, partial(row, make, options)) for name, (make, options) in models().items()]


def covering_set(run: Run) -> list[OneCase]:
    """Plans that hold every pair of choices of a template, at sizes that no tile divides, against float64."""
    from tests.cu.every_choice.covering import covering

    families = ("sm90", "copied") if run.arch == "sm90" else ("sm80", "fma", "tf32")
    found = [(family, row) for family in families for row in covering(family)[0]]
    if run.dry:
        found = found[::40]
    return [
        OneCase(f"{family} {' '.join(map(str, row.values()))}", partial(covered, run, family, row)) for family, row in found
    ]


def covered(run: Run, family: str, row: Row) -> Row:
    """The row of one plan of the covering set."""
    from tests.cu.every_choice.covering import plan_of

    g, options = product_of(family, row, 80 if run.dry else 320)
    prepared = prepare(g, target=run.target, **options)
    key = plan_key(prepared.stages["region"].main.body[0], prepared.target)
    plan = plan_of(family, row)
    f = tt.compile(g, target=run.target, decisions=Decisions(plans={key: plan}), **options)
    inputs = random_inputs(f, hash_of(str(row)))
    outputs = {p.tensor: run.where.poisoned([int(evaluate(s, {})) for s in p.shape], p.dtype) for p in f.signature.outputs}
    f(inputs, out=outputs)
    exact = {n: a if a.dtype.itemsize == 1 else a.astype(np.float64) for n, a in inputs.items()}
    wanted = f.compilation.reference_run(exact, {})
    error = max(distance(memory_of(o), np.asarray(wanted[n], np.float64)) for n, o in outputs.items())
    return {"ok": error < 1e-2, "error": error}


def product_of(family: str, row: Row, m: int) -> tuple[tt.Graph, dict[str, Any]]:
    """The model of a row of the covering set: a product with its epilogue."""
    n, k, d = m + 16, m - 32, row.get("dtype", tt.fp32)
    g, b = tt.Graph("g"), ((2,) if row["batch"] else ())
    ta, tb = (side == "t" for side in row["order"])
    x, y = g.input("x", b + ((k, m) if ta else (m, k)), d), g.input("y", b + ((n, k) if tb else (k, n)), d)
    wide = tt.fp32 if d.is_fp8 else d
    x, y = (t.cast(tt.fp32) if d.is_fp8 else t for t in (x, y))
    z = (x.transpose(-1, -2) if ta else x) @ (y.transpose(-1, -2) if tb else y)
    if "bias" in row["epilogue"]:
        z = z + g.input("bias", (n,), wide).expand((*b, m, n))
    if "residual" in row["epilogue"]:
        z = z + g.input("r", (*b, m, n), wide)
    if "relu" in row["epilogue"]:
        z = z.relu()
    g.output("z", z.cast(tt.fp16) if d.is_fp8 else z)
    rounded = family == "tf32" or (family in ("sm90", "copied") and d.itemsize != 2)
    return g, {"precision": "tf32"} if rounded else {}


def lanes(run: Run) -> list[OneCase]:
    """Each function of the PTX header against the emulated machine."""
    tables = Tables(run.where, run.arch, keep=not run.dry)
    rows = [OneCase(k.symbol, partial(tables.row, k)) for k in tables.kernels]
    return [*rows, OneCase("functions without a table", tables.left)]


def kernels(run: Run, small: bool = False) -> list[OneCase]:
    """Results against float64, on outputs that were poisoned."""
    return [OneCase(case.name, partial(check, run, case)) for case in checked(small or run.dry)]


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


def sanitized(run: Run) -> list[OneCase]:
    """The small cases under compute-sanitizer."""
    return kernels(run, small=True)


def limits(run: Run) -> list[OneCase]:
    """Rates of the machine itself: copying, and a large matrix product of its own library."""
    return [OneCase(name, partial(ceiling, run.target, name)) for name in CEILINGS]


def speed(group: str) -> Callable[[Run], list[OneCase]]:
    """Tatami against its peers for the cases of a group."""

    def step(run: Run) -> list[OneCase]:
        cases = tiny(group) if run.dry else timed(group)
        return [OneCase(c.name, lambda c=c: Contest(run.target, c).measure()) for c in cases]  # type: ignore[misc]

    return step


def compiled_peers(run: Run) -> list[OneCase]:
    """Cases against torch.compile, tuned as far as it goes (its products are Triton's templates or cuBLAS, whichever is faster)."""
    cases = tiny("memory") if run.dry else [c for g in ("memory", "gemm", "attention") for c in timed(g)[:2]]
    return [OneCase(c.name, lambda c=c: Contest(run.target, tuned(c)).measure()) for c in cases]  # type: ignore[misc]


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


PLANS = 12
"""Number of plans of a product that are run."""


def plans(run: Run) -> list[OneCase]:
    """The best plans of the cost model for each product, run: a table of decisions."""
    cases = tiny("gemm") if run.dry else timed("gemm")
    found: dict[str, Any] = {}

    def row(case: Case, number: int) -> Row:
        if case.name not in found:
            compilation = prepare(case.make(), target=run.target)
            region = compilation.stages["region"].main.body[0]
            found[case.name] = region, plan_key(region, compilation.target), measurable(region, compilation.target, {})
        region, key, candidates = found[case.name]
        if number >= len(candidates):
            return {"skipped": "there are no more plans"}
        candidate = candidates[number]
        made = Contest(run.target, case, Decisions(plans={key: candidate.plan})).measure(peers=False)
        document = to_builtins(kept_choices((Guarded((), candidate.plan),), region))
        return {**made, "plan": candidate.line, "estimate": candidate.estimate["total"], "key": key, "document": document}

    numbers = range(2 if run.dry else PLANS)
    return [OneCase(f"{c.name} plan {k}", partial(row, c, k)) for c in cases for k in numbers]


def faults(run: Run) -> list[OneCase]:
    """Faults that are planted: each costs its own row."""
    return planted(run.where)


def on_device(run: Run) -> list[OneCase]:
    """The device class and the timing code, on stand-ins for the driver and PyTorch."""
    from benchmarks.gpu.standin import device_cases

    return list(device_cases(run.arch, lambda case: check(Run("cuda", dry=False), case)))


@dataclass(frozen=True)
class Step:
    """One step: its cases, and the seconds of all and of each that it is given."""

    cases: Callable[[Run], list[OneCase]]
    seconds: float
    each: float = 20.0


STEPS: Mapping[str, Step] = {
    "first": Step(first, 20.0, 10.0),
    "models": Step(one_of_each, 40.0),
    "covering": Step(covering_set, 90.0, 15.0),
    "lanes": Step(lanes, 50.0, 10.0),
    "kernels": Step(kernels, 60.0),
    "limits": Step(limits, 15.0),
    "gemm": Step(speed("gemm"), 60.0, 30.0),
    "attention": Step(speed("attention"), 36.0, 30.0),
    "conv": Step(speed("conv"), 30.0, 30.0),
    "memory": Step(speed("memory"), 22.0, 30.0),
    "gradient": Step(speed("gradient"), 14.0, 30.0),
    "compiled": Step(compiled_peers, 30.0, 60.0),
    "plans": Step(plans, 35.0),
    "memcheck": Step(sanitized, 14.0, 60.0),
    "racecheck": Step(sanitized, 14.0, 60.0),
}
"""Steps by name, in the order in which they are asked: what everything stands on first. Together they are under nine minutes."""
PLANTED = {"device": Step(on_device, 120.0, 120.0), "planted": Step(faults, 60.0, 6.0)}
"""Steps that a dry run has besides, and that `--only` may name."""


def run_step(name: str, target: str, dry: bool, lines: Path, begin: int) -> None:
    """The cases of one step in this process, from number `begin` on; rows go to `lines` line by line."""
    work({**STEPS, **PLANTED}[name].cases(Run(target, dry)), begin, lines)
