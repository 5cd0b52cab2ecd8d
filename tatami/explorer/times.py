"""Measured times in a page, and as a trace of the form that Chrome and Perfetto open.

The trace lays the kernels of `main` out in the order of their waves: one after another, each as long as its least time. In a
wave, kernels that run at the same time start together, each on a line of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tatami.core.module import Module
from tatami.execution.ir import ExecutionPlan
from tatami.explorer import ir
from tatami.report.timings import Measurement
from tatami.runtime.machine.peak import Peaks


@dataclass(frozen=True)
class Measured:
    """Times of kernels, the peaks of the machine that they were taken on, and the values of size symbols."""

    found: Measurement
    peaks: Peaks
    sizes: Mapping[str, int]


def with_times(page: ir.Explored, measured: Measured) -> ir.Explored:
    """The page with measured seconds and bounds in the rows of `main` and of called programs."""
    by_name = {t.kernel: t for t in measured.found.timings}
    rows = []
    for row in page.kernels:
        t = by_name.get(row.name) if row.program != "setup" else None
        if t is not None:
            estimate = row.estimate if t.estimate is None else t.estimate
            row = msgspec.structs.replace(row, seconds=t.seconds, bound=t.bound, estimate=estimate)
        rows.append(row)
    p = measured.peaks
    peaks = ir.Peaks(p.flops, p.memory, p.cache, measured=True)
    return msgspec.structs.replace(page, kernels=tuple(rows), peaks=peaks, whole=measured.found.whole)


def trace(execution: Module[ExecutionPlan], found: Measurement, model: str) -> dict[str, object]:
    """The trace as JSON values: an event per wave and per kernel of `main`, times in microseconds."""
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": model}},
        {"ph": "M", "pid": 1, "tid": 0, "name": "thread_name", "args": {"name": "waves"}},
    ]
    events += _events(execution.main, {t.kernel: (t.seconds, t.kind, t.sources) for t in found.timings})
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"least_seconds": found.whole, "runs": found.runs}}


def _events(plan: ExecutionPlan, times: dict[str, tuple[float, str, Sequence[str]]]) -> Iterator[dict[str, object]]:
    clock = 0.0
    waves: dict[int, list[tuple[str, bool]]] = {}
    for ins in plan.instructions:
        if ins.debug_name in times:
            waves.setdefault(ins.wave, []).append((ins.debug_name, ins.beside))
    for wave, members in waves.items():
        start, end, line = clock, clock, 1
        for name, beside in members:
            seconds, kind, sources = times[name]
            begin = start if beside else end
            yield {
                "ph": "X", "pid": 1, "tid": line, "name": name, "cat": kind, "ts": begin * 1e6, "dur": seconds * 1e6,
                "args": {"computes": list(sources)},
            }  # fmt: skip
            end = max(end, begin + seconds)
            line += beside
        yield {
            "ph": "X",
            "pid": 1,
            "tid": 0,
            "name": f"wave {wave}",
            "cat": "wave",
            "ts": start * 1e6,
            "dur": (end - start) * 1e6,
        }
        clock = end
