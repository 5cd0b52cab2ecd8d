"""A winner behind the guard of the sizes that it was measured at.

plan when s0 == 32      the winner
plan …                  what the compiler chose, for all other sizes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.decisions import Decisions
from tatami.plan.decide import read_choices
from tatami.plan.ir import CpuSplit, Guarded
from tatami.plan.rename import kept_choices, obeyed_choices
from tatami.region.walk import all_axes
from tatami.search.cut import Place


def behind_sizes(place: Place, decision: Decisions) -> Decisions | None:
    """The decision about one Region for its program: as it is where all sizes are numbers, else behind a guard, before the plans
    that the Region has now. None if a plan of it cannot stand behind a guard (one that splits the Region)."""
    sizes = _open_sizes(place)
    if not sizes:
        return decision
    (choice,) = obeyed_choices(read_choices(decision.plans[place.key], place.key)[-1:], place.region)
    if any(isinstance(c.plan, CpuSplit) for c in (choice, *place.choices)):
        return None
    conditions = tuple(Condition(var(n), 1, v, v) for n, v in sizes.items() if v)
    others = [c for c in place.choices if c.conditions != conditions]
    kept: Any = kept_choices((Guarded(conditions, choice.plan), *others), place.region)
    return Decisions(plans={place.key: [*to_builtins(kept)]}) if conditions else None


def _open_sizes(place: Place) -> Mapping[str, int]:
    """Size symbol of the Region, in its own names -> the value it was measured at."""
    old = {new: name for name, new in place.names.symbols.items()}
    used = {n for size in all_axes(place.region).values() for n in free_vars(size)}
    return {old[s]: v for s, v in place.sizes.items() if old[s] in used}
