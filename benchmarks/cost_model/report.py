"""docs/cost-model.md from the record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from benchmarks.cost_model.record import Kernel, Model, Record
from tatami.search.rank_correlation import rank_correlation

WORST = 10
"""Kernels whose estimates are furthest off that the page lists."""
COUNTS_FROM = 5e-6
"""Seconds from which a kernel is listed: below, a clock and a launch are most of its time."""
OFF = 3.0
"""Ratio from which an estimate is off."""


def page(record: Record) -> str:
    """The text of the page."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: Record) -> Iterator[str]:
    kernels = [(m, k) for m in record.models for k in m.kernels]
    yield "# The cost model against measurement"
    yield ""
    yield "Written by `python -m benchmarks.cost_model`: every kernel of the six models of the benchmark and of trained models, one"
    yield "thread, its time inside its program next to the estimate by which its plan was chosen (`plan/loops/estimate.py`,"
    yield "`plan/cpu/`). A ratio is estimate over measurement. Rank correlation is Spearman's: 1 where estimates order the kernels"
    yield "of a model as their times do, which is what a choice among plans needs."
    yield ""
    machine = ", ".join(f"{k} {v}" for k, v in record.machine.items())
    yield f"Machine: {machine}."
    yield ""
    if not kernels:
        return
    yield "## Models"
    yield ""
    yield "| model | kernels | without an estimate | rank correlation | median ratio | within 2 | off by more than 3 | their share of time |"
    yield "|---|---|---|---|---|---|---|---|"
    for m in record.models:
        yield _row(m) if not m.refused else f"| {m.name} | refused: {' '.join(m.refused.split())} |||||||"
    yield _row(
        Model("all", sum(m.whole for m in record.models), sum(m.unpriced for m in record.models), [k for _, k in kernels])
    )
    yield ""
    yield from _by_plan([k for _, k in kernels])
    yield ""
    yield f"## The {WORST} estimates that are furthest off"
    yield ""
    yield f"Kernels of {COUNTS_FROM * 1e6:g} us and more, each plan and term once per model."
    yield ""
    yield "| model | kernel | plan | estimate us | measured us | ratio | reason |"
    yield "|---|---|---|---|---|---|---|"
    for m, k in _worst(kernels):
        what = f"{k.name} {', '.join(k.sources)}"[:60]
        numbers = f"{k.estimate * 1e6:.3g} | {k.seconds * 1e6:.3g} | {k.ratio:.2f}"
        yield f"| {m.name} | {what} | {k.region}, {k.plan} | {numbers} | {reason(k, record)} |"


def _worst(kernels: Sequence[tuple[Model, Kernel]]) -> list[tuple[Model, Kernel]]:
    """The kernels whose estimates are furthest off, of those alike the first."""
    found: list[tuple[Model, Kernel]] = []
    seen: set[tuple[str, str, str]] = set()
    large = [(m, k) for m, k in kernels if k.seconds >= COUNTS_FROM]
    for m, k in sorted(large, key=lambda x: -abs(math.log(x[1].ratio))):
        alike = (m.name, k.plan, k.largest_term)
        if alike not in seen:
            seen.add(alike)
            found.append((m, k))
    return found[:WORST]


def reason(k: Kernel, record: Record) -> str:
    """The likely reason why an estimate is off, from its terms."""
    term, share = k.largest_term, f"{k.bytes / 1e6:.3g} MB"
    if k.ratio > 1 and term == "memory" and k.bytes <= record.l3_bytes / 2:
        return f"{share} count from memory; inside the program they are in cache"
    if k.ratio > 1 and term == "memory":
        return f"{share} take less time than at the measured bandwidth: some are in cache"
    if k.ratio > 1 and term == "again":
        return "reads that count as repeated are served by the caches"
    if k.ratio > 1:
        return f"{term} counts more cycles than the compiled loops take"
    if term == "memory":
        return f"loops of {k.terms.get('compute', 0.0) * 1e6:.3g} us count as hidden behind {share}, and are not"
    return f"{term} counts fewer cycles than the compiled loops take"


def _by_plan(kernels: Sequence[Kernel]) -> Iterator[str]:
    yield "## Kinds of plans"
    yield ""
    yield "| plan | kernels | median ratio | tenth | ninth tenth | rank correlation |"
    yield "|---|---|---|---|---|---|"
    for plan in sorted({k.plan for k in kernels}):
        own = [k for k in kernels if k.plan == plan]
        ratios = sorted(k.ratio for k in own)
        low, middle, high = (ratios[min(len(ratios) - 1, int(len(ratios) * q))] for q in (0.1, 0.5, 0.9))
        yield f"| {plan} | {len(own)} | {middle:.2f} | {low:.2f} | {high:.2f} | {_rank_text(own)} |"


def _row(m: Model) -> str:
    ratios = sorted(k.ratio for k in m.kernels)
    if not ratios:
        return f"| {m.name} | 0 | {m.unpriced} ||||||"
    off = [k for k in m.kernels if not 1 / OFF <= k.ratio <= OFF]
    near = sum(0.5 <= r <= 2 for r in ratios) / len(ratios)
    share = sum(k.seconds for k in off) / sum(k.seconds for k in m.kernels)
    cells = (f"{ratios[len(ratios) // 2]:.2f}", f"{near:.0%}", str(len(off)), f"{share:.0%}")
    return f"| {m.name} | {len(ratios)} | {m.unpriced} | {_rank_text(m.kernels)} | {' | '.join(cells)} |"


def _rank_text(kernels: Sequence[Kernel]) -> str:
    found = rank_correlation([k.estimate for k in kernels], [k.seconds for k in kernels])
    return "" if found is None else f"{found:.2f}"
