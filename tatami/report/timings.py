"""Times of kernels, measured next to the plan's estimates, and what they are compared with: chosen plans, stated peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tatami.compilation import Compilation
from tatami.core.algebra.visit import free_vars
from tatami.core.cost import rates
from tatami.core.kernel import is_met
from tatami.core.target import Target
from tatami.plan.ir import Guarded
from tatami.runtime.machine.peak import Peaks


@dataclass(frozen=True)
class Timing:
    """One kernel: `seconds` is the least of all runs. Figures of the model are for the measured sizes and the threads that
    ran; they are None in called programs and for sizes that data decide.

    estimate: the plan's, in seconds. bound: seconds that the machine's peaks allow for `flops` and `bytes` (the roofline).
    flops, bytes: the Region's at the measured sizes (spec 5 §10: 2MNK and each operand and result once).
    occupancy: share of the machine's cores that ran it. plan: the plan as JSON on one line, without
    spaces; empty where there is none. terms: those of the estimate, in seconds.
    """

    kernel: str
    kind: str
    sources: tuple[str, ...]
    seconds: float
    estimate: float | None
    bound: float | None
    flops: float | None
    bytes: float | None
    occupancy: float
    plan: str
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """Times of all kernels. `whole`: the least time of a run without clocks in it, in seconds. `runs`: number of runs."""

    timings: tuple[Timing, ...]
    whole: float
    runs: int


def estimate_sizes(compilation: Compilation) -> dict[str, int]:
    """Sizes of symbols for which the plans were chosen, and at which their estimates were taken."""
    out: dict[str, int] = {}
    for choice in choices_at(compilation, {}).values():
        for name, value in choice.estimate.items():
            if name.startswith("at."):
                out.setdefault(name.removeprefix("at."), int(value))
    return out


def stated_peaks(target: Target) -> Peaks:
    """Peaks of a target's description; a cache is taken to have four times the bandwidth of memory."""
    r = rates(target)
    return Peaks(r.flops * max(1, target.cores), r.bandwidth, 4 * r.bandwidth)


def choices_at(compilation: Compilation, sizes: Mapping[str, int]) -> dict[tuple[str, str], Guarded]:
    """The plan of each Region that runs at these sizes; the plan without conditions if `sizes` does not decide."""
    plans = compilation.stages["plan"].programs if "plan" in compilation.stages else {}

    def taken(choice: Guarded) -> bool:
        return all(free_vars(c.size) <= sizes.keys() and is_met(c, sizes) for c in choice.conditions)

    return {(name, r.region): next(c for c in r.choices if taken(c)) for name, plan in plans.items() for r in plan.regions}
