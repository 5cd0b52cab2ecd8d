"""A plan under other names: plans are made once per canonical Region and used for every equal one (design §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tatami.core.expr import substitute, var
from tatami.core.kernel import Condition
from tatami.plan.ir import (
    CpuContraction,
    CpuPlanes,
    CpuRows,
    CpuSplit,
    CpuStreaming,
    CpuTurn,
    CpuWindow,
    CpuWinograd,
    GpuStream,
    GpuSync,
    Guarded,
    Pass,
    Scalar,
    SchedulePlan,
    Sm80Pair,
    Sm90Pair,
)
from tatami.plan.loops.nest_form import rename_loops
from tatami.region.canonical_key import Renaming, canonical
from tatami.region.ir import Region


def inverse(names: Renaming) -> Renaming:
    """From counters back to the names of one Region."""

    def turned(group: Mapping[str, str]) -> dict[str, str]:
        return {new: old for old, new in group.items()}

    return Renaming(turned(names.tensors), turned(names.lets), turned(names.axes), turned(names.symbols))


def rename_plan(plan: SchedulePlan, names: Renaming) -> SchedulePlan:
    """`plan` with axes, lets and tensors renamed. Axes of GPU plans carry a suffix (``m.o``), which stays."""
    replace: Any = msgspec.structs.replace

    def axis(name: str) -> str:
        head, dot, rest = name.partition(".")
        return names.axes.get(head, head) + dot + rest

    def let(name: str) -> str:
        head, dot, rest = name.partition(".")
        return names.lets.get(head, head) + dot + rest

    def tensor(name: str) -> str:
        return names.tensors.get(name, name)

    result: SchedulePlan
    match plan:
        case Scalar() | CpuRows():
            result = rename_loops(plan, axis, let, tensor)
        case GpuStream():
            result = replace(
                plan,
                outer=tuple(axis(a) for a in plan.outer),
                passes=tuple(Pass(tuple(axis(a) for a in p.axes), tuple(let(n) for n in p.lets)) for p in plan.passes),
                storage={let(n): s for n, s in plan.storage.items()},
            )
        case CpuContraction():
            result = replace(
                plan,
                acc=let(plan.acc),
                packed=tuple(tensor(t) for t in plan.packed),
                epilogue=tuple(let(n) for n in plan.epilogue),
                images=tuple(axis(a) for a in plan.images),
            )
        case CpuWindow():
            result = replace(plan, let=let(plan.let))
        case CpuWinograd() | CpuPlanes():
            result = replace(plan, acc=let(plan.acc), packed=tuple(tensor(t) for t in plan.packed))
        case CpuTurn():
            result = replace(plan, along=axis(plan.along), across=axis(plan.across))
        case CpuStreaming():
            result = replace(plan, first=let(plan.first), second=let(plan.second))
        case Sm80Pair() | Sm90Pair():
            tail = tuple(axis(a) for a in plan.predicate_tail)
            others = tuple(let(n) for n in plan.others)
            result = replace(plan, first=let(plan.first), others=others, second=let(plan.second), predicate_tail=tail)
        case CpuSplit():
            result = CpuSplit(tuple(tuple(let(n) for n in p) for p in plan.parts))
        case _:
            result = replace(
                plan,
                acc=let(plan.acc),
                epilogue=tuple(let(n) for n in plan.epilogue),
                bind={axis(a): where for a, where in plan.bind.items()},
                predicate_tail=tuple(axis(a) for a in plan.predicate_tail),
            )
            if not isinstance(plan, GpuSync):
                cache = tuple(replace(c, tensor=tensor(c.tensor), at=axis(c.at)) for c in plan.cache)
                edges = tuple(replace(e, source=let(e.source), target=let(e.target)) for e in plan.local_edges)
                vectorize = replace(plan.vectorize, axis=axis(plan.vectorize.axis))
                result = replace(result, cache=cache, local_edges=edges, vectorize=vectorize)
    return result


def rename_choice(choice: Guarded, names: Renaming) -> Guarded:
    """A guarded plan with its size symbols renamed as well."""
    sizes = {old: var(new) for old, new in names.symbols.items()}
    conditions = tuple(Condition(substitute(c.size, sizes), c.divisor, c.low, c.high) for c in choice.conditions)
    estimate = {_estimate_key(k, names): v for k, v in choice.estimate.items()}
    return Guarded(conditions, rename_plan(choice.plan, names), estimate)


def kept_choices(choices: tuple[Guarded, ...], region: Region) -> SchedulePlan | tuple[Guarded, ...]:
    """For a document: lets, tensors and sizes by their places in the Region (v0', t0', s0'), since every equal Region obeys
    it, whatever its names are. One plan where there is no choice."""
    places = _places(region)
    kept = tuple(rename_choice(msgspec.structs.replace(c, estimate={}), places) for c in choices)
    return kept[0].plan if len(kept) == 1 else kept


def obeyed_choices(choices: tuple[Guarded, ...], region: Region) -> tuple[Guarded, ...]:
    """Those of a document in the names of `region`, which the document may use as well."""
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
