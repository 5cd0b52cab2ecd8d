"""Plans of products, convolutions and pairs of products (attention) that were ranked beforehand: a table per chip, from which
the planner takes the plan of a Region that it contains.

An entry names its source: the simulation of every plan of the SM90 templates' space, of which the planner examines some 20; or
measurements on the chip, whose record replaces it (`python -m benchmarks.gpu.tuned`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from tatami.core.target import Target
from tatami.plan.choose_gpu import offered
from tatami.plan.decide import read_plan
from tatami.plan.ir import GpuSync, Guarded, Rejected, Sm80Mma, Sm80Pair, Sm90Mma, Sm90Pair
from tatami.plan.rename import obeyed_choices
from tatami.region.ir import Region

TUNED = Sm80Mma | Sm90Mma | GpuSync | Sm80Pair | Sm90Pair
"""Kinds of plans that a table may replace."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The best of `plans` plans with its `seconds`. `record`: the file of the measurements, or the kind of simulation."""

    case: str
    ranked_by: Literal["simulation", "measurement"]
    seconds: float
    plans: int
    record: str
    document: dict[str, Any]


@lru_cache
def tuned_table(chip: str) -> Mapping[str, Entry]:
    """The table of a chip, by the key of a plan; empty if there is none."""
    file = files("tatami.plan") / "tuned_plans" / f"{chip}.json"
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Entry]) if file.is_file() else {}


def take_tuned(
    region: Region, key: str, choices: tuple[Guarded, ...], target: Target
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]]:
    """The table's plan instead of the chosen one, for a Region without symbolic sizes, and the rejected choice with the
    reason; else the choices."""
    chip = target.chip or target.name
    entry = tuned_table(chip).get(key)
    (chosen, *others) = choices
    if entry is None or others or not isinstance(chosen.plan, TUNED):
        return choices, ()
    (tuned,) = obeyed_choices((Guarded((), read_plan(entry.document, key)),), region)
    assert isinstance(tuned.plan, TUNED)
    if tuned.plan == chosen.plan:
        return choices, ()
    theirs, own = (offered(plan, region, target, {}) for plan in (tuned.plan, chosen.plan))
    best = f"{theirs.line}: {entry.seconds * 1e6:.4g} us by {entry.ranked_by} of {entry.plans} plans"
    rejected = Rejected(own.line, f"the table of {chip} has {best}", chosen.estimate)
    return (Guarded((), tuned.plan, theirs.estimate),), (rejected,)
