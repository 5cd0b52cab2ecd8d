"""Time per kernel on this machine, next to the plan's estimate (D2.18: measuring stands above the pipeline)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from tatami.build import load_cpu_program
from tatami.compilation import Compilation
from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.cost import rates
from tatami.core.target import Target
from tatami.ledger.exchange import plain
from tatami.plan.choose import estimate_at
from tatami.plan.loops.estimate import number_at
from tatami.region.ir import Region
from tatami.region.walk import all_axes
from tatami.report.explain import kernel_origins
from tatami.report.timings import Measurement, Timing, choices_at, stated_peaks
from tatami.runtime.cores import thread_count
from tatami.runtime.function import Function
from tatami.runtime.machine.peak import Peaks, check_measurable

MIN_RUNS = 5
"""Minimum number of runs, however long they take."""
MAX_RUNS = 200
"""Maximum number of runs, even if time is left: more of them hardly lower the least time."""


def measure(
    compilation: Compilation,
    inputs: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    threads: int | None,
    seconds: float = 1.0,
    peaks: Peaks | None = None,
) -> Measurement:
    """Run `main` on `inputs` for about `seconds`, each time without and with clocks around kernels.

    `sizes`: value of each size symbol. `threads`: None for all cores. `peaks`: measured peaks of the machine; None for those
    of its description, by which plans are chosen. Raises TatamiError where kernels cannot be timed."""
    check_measurable(compilation.target)
    execution = compilation.stages["execution"]
    plain = Function(execution, load_cpu_program(compilation, threads), sizes=sizes)
    program = load_cpu_program(compilation, threads, timed=True)
    timed = Function(execution, program, sizes=sizes)
    call, clocked = _ready(plain, inputs), _ready(timed, inputs)
    call(), clocked()
    program.times()
    least: dict[tuple[str, str], float] = {}
    whole, runs = float("inf"), 0
    until = time.perf_counter() + seconds
    while runs < MIN_RUNS or (time.perf_counter() < until and runs < MAX_RUNS):
        started = time.perf_counter()
        call()
        whole = min(whole, time.perf_counter() - started)
        clocked()
        for key, taken in program.times().items():
            least[key] = min(least.get(key, float("inf")), taken)
        runs += 1
    choices = choices_at(compilation, sizes)
    known = {(k.program, k.name): k for k in kernel_origins(compilation)}
    facts = {(p, f.region): f for p, body in compilation.stages["poly_core"].programs.items() for f in body.regions}
    regions = {r.name: r for r in compilation.stages["region"].main.body if isinstance(r, Region)}
    used = threads or thread_count()
    ran_on = msgspec.structs.replace(compilation.target, cores=used)
    busy = min(1.0, used / max(1, compilation.target.cores))
    timings: list[Timing] = []
    for (name, kernel), taken in least.items():
        if name == "setup":
            continue
        origin = known.get((name, kernel))
        found = choices.get((name, kernel))
        region = regions.get(kernel) if name == "main" else None  # a callee has sizes of its own, and may run many times
        fact = facts.get((name, kernel)) if region is not None and _symbols(region) <= sizes.keys() else None
        terms: dict[str, float] = {}
        if found is not None and region is not None and fact is not None:
            terms = estimate_at(region, fact, found, ran_on, sizes)
        kind = origin.kind if origin is not None else "step"
        sources = origin.sources if origin is not None else ()
        flops = bytes_ = bound = None
        if fact is not None:
            flops, bytes_ = (
                number_at(fact.flops, sizes),
                number_at(fact.bytes_read, sizes) + number_at(fact.bytes_written, sizes),
            )
            bound = _roofline(ran_on, peaks or stated_peaks(ran_on), flops, bytes_)
        plan = json.dumps(to_builtins(found.plan), separators=(",", ":")) if found is not None else ""
        timings.append(Timing(kernel, kind, sources, taken, terms.get("total"), bound, flops, bytes_, busy, plan, terms))
    return Measurement(tuple(timings), whole, runs)


def _ready(function: Function, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """A call with its arrays: bound to the results' too, unless values decide the size of one."""
    signature = function.signature
    known = {n for port in signature.inputs for size in port.shape for n in free_vars(size)}
    if all(free_vars(size) <= known for port in signature.outputs for size in port.shape):
        return function.bind(inputs)
    return lambda: function(inputs)


def ledger_rows(model: str, target: str, sizes: Mapping[str, int], found: Measurement) -> list[tuple[object, ...]]:
    """A row of the ledger for each kernel."""
    at = " ".join(f"{n}={v}" for n, v in sizes.items())
    return [
        (plain(model), target, at, t.kernel, t.kind, t.flops, t.bytes, t.occupancy, t.estimate, t.seconds, t.plan)
        for t in found.timings
    ]


def _roofline(target: Target, peaks: Peaks, flops: float, bytes_: float) -> float:
    """Seconds at the machine's peaks. Bytes that fit the cache are read from it, since they are there after the first run."""
    return max(flops / peaks.flops, bytes_ / (peaks.cache if bytes_ <= rates(target).cache else peaks.memory))


def _symbols(region: Region) -> set[str]:
    return {name for size in all_axes(region).values() for name in free_vars(size)}
