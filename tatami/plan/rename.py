"""A plan under other names: plans are made once per canonical Region and used for every equal one (design §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.core.renaming import renamed
from tatami.plan.ir import AXIS, LET, READ, WRITTEN, Guarded, SchedulePlan
from tatami.region.ir import Region
from tatami.region.views.canonical_key import Renaming, canonical

P = TypeVar("P", bound=SchedulePlan)


def inverse(names: Renaming) -> Renaming:
    """The map from canonical names back to the names of one Region."""

    def turned(group: Mapping[str, str]) -> dict[str, str]:
        return {new: old for old, new in group.items()}

    return Renaming(turned(names.tensors), turned(names.lets), turned(names.axes), turned(names.symbols))


def rename_plan(plan: P, names: Renaming) -> P:
    """`plan` with axes, lets and tensors renamed. Axes of GPU plans carry a suffix (``m.o``), which stays."""

    def axis(name: str) -> str:
        head, dot, rest = name.partition(".")
        return names.axes.get(head, head) + dot + rest

    def let(name: str) -> str:
        head, dot, rest = name.partition(".")
        return names.lets.get(head, head) + dot + rest

    def tensor(name: str) -> str:
        return names.tensors.get(name, name)

    return renamed(plan, {AXIS: axis, LET: let, READ: tensor, WRITTEN: tensor})


def rename_choice(choice: Guarded, names: Renaming) -> Guarded:
    """A guarded plan with its size symbols renamed as well."""
    sizes = {old: var(new) for old, new in names.symbols.items()}
    conditions = tuple(Condition(substitute(c.size, sizes), c.divisor, c.low, c.high) for c in choice.conditions)
    estimate = {_estimate_key(k, names): v for k, v in choice.estimate.items()}
    return Guarded(conditions, rename_plan(choice.plan, names), estimate)


def kept_choices(choices: tuple[Guarded, ...], region: Region) -> SchedulePlan | tuple[Guarded, ...]:
    """The choices for a document: lets, tensors and sizes by their places in the Region (v0', t0', s0'), since every equal
    Region obeys it, whatever its names. A single choice is stored as its plan."""
    places = _places(region)
    kept = tuple(rename_choice(msgspec.structs.replace(c, estimate={}), places) for c in choices)
    return kept[0].plan if len(kept) == 1 else kept


def obeyed_choices(choices: tuple[Guarded, ...], region: Region) -> tuple[Guarded, ...]:
    """The choices of a document in the names of `region`, which the document may also use directly."""
    names = inverse(_places(region))
    return tuple(rename_choice(c, names) for c in choices)


def _places(region: Region) -> Renaming:
    names = canonical(region)[1]

    def marked(group: Mapping[str, str]) -> dict[str, str]:
        return {name: f"{place}'" for name, place in group.items()}

    return Renaming(marked(names.tensors), marked(names.lets), {}, marked(names.symbols))


def _estimate_key(key: str, names: Renaming) -> str:
    head, dot, symbol = key.partition("at.")
    return f"at.{names.symbols.get(symbol, symbol)}" if dot and not head else key
