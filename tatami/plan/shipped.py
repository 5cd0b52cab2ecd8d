"""Plans for the CPU that `tatami tune` found and that ship with Tatami: a table per class of machines, from which a Region that it
contains takes its plan, at the sizes that were measured.

An entry names its record: the case, the date, the machine, the times. It is taken where the machine has the same instructions,
first caches and number of cores; elsewhere, and for a Region that no table has, planning is what it is without tables
(`python -m benchmarks.shipped` writes them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.core.target import Target
from tatami.plan.decide import read_plan
from tatami.plan.ir import CpuRows, CpuSplit, Guarded, RegionPlan, Rejected, Scalar, SchedulePlan
from tatami.plan.key import target_class
from tatami.plan.named_region import NamedRegion
from tatami.plan.rename import obeyed_choices
from tatami.plan.show import name_plan
from tatami.plan.verify_plan import verify_plan
from tatami.region.views.canonical_key import Renaming, canonical
from tatami.region.walk import all_axes


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts besides instructions that decide which plan is fastest: bytes of the caches of a core, number of cores."""

    l1_bytes: int
    l2_bytes: int
    cores: int


class Shipped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan that was measured. `case`: the model that it was found in; `date`: YYYY-MM-DD; `sizes`: values of the Region's canonical
    size symbols; `before`, `after`: seconds of the compiler's own plan and of this one, over `turns` turns; `record`: the options
    of the search; `document`: the plan."""

    case: str
    date: str
    machine: Machine
    sizes: dict[str, int]
    before: float
    after: float
    turns: int
    record: str
    document: dict[str, object]


Table = dict[str, tuple[Shipped, ...]]
"""Key of a plan and the constant operands (`measured_key`) -> what was found, for several sizes and machines."""


def table_name(target: Target) -> str:
    """The name of the file for a class of targets."""
    return f"{target_class(target).replace(':', '-')}.json"


def machine_of(target: Target) -> Machine:
    """The machine that a target describes."""
    return Machine(target.l1_bytes, target.l2_bytes, target.cores)


def measured_key(key: str, constants: frozenset[str]) -> str:
    """The key of a plan and the constant operands by canonical names: a constant is packed once, at load, an input at each call."""
    return " ".join([key, *sorted(constants)])


@lru_cache
def shipped_table(name: str) -> Mapping[str, tuple[Shipped, ...]]:
    """The table in a file; empty if there is none."""
    file = files("tatami.plan") / "tuned_plans" / name
    return msgspec.json.decode(file.read_bytes(), type=Table) if file.is_file() else {}


def take_shipped(r: RegionPlan, n: NamedRegion, target: Target) -> RegionPlan:
    """The plans of a Region, before them those that the table has for it: behind a guard where sizes are open, else in the place of
    the own one. One that its Region cannot obey is told among the rejected plans."""
    table = shipped_table(table_name(target))
    if not table:
        return r
    names = n.names if n.lying is n.region else canonical(n.region)[1]
    old = {new: name for name, new in n.names.tensors.items()}
    constants = frozenset(names.tensors[old[c]] for c in n.constants)
    for entry in table.get(measured_key(r.key, constants), ()):
        if entry.machine == machine_of(target) and entry.sizes.keys() == {*names.symbols.values()}:
            r = _taken(r, n, entry, names, target)
    return r


def _taken(r: RegionPlan, n: NamedRegion, entry: Shipped, names: Renaming, target: Target) -> RegionPlan:
    try:
        plan = _obeyed(n, entry, target)
    except TatamiError as error:
        why = f"tuned {entry.date} for {entry.case}, and not obeyed: {error.diagnostics[0].why}"
        return _not_taken(r, str(entry.document.get("kind")), why)
    conditions = tuple(_conditions(n, names, entry.sizes))
    if conditions and any(isinstance(p, CpuSplit) for p in (plan, *(c.plan for c in r.choices))):
        why = f"tuned {entry.date} for {entry.case}, and not obeyed: a plan that splits a Region has no guard"
        return _not_taken(r, name_plan(plan), why)
    times = f"{entry.after * 1e6:.4g} us instead of {entry.before * 1e6:.4g}"
    told = f"{entry.date}: {times} ({entry.case})"
    choice = Guarded(conditions, plan)
    if conditions:
        return msgspec.structs.replace(r, choices=(choice, *r.choices), tuned=(*r.tuned, told))
    own = r.choices[-1]
    loser = Rejected(name_plan(own.plan), f"tuned {told}", own.estimate)
    return msgspec.structs.replace(r, choices=(choice,), rejected=(loser, *r.rejected), tuned=(told,))


def _not_taken(r: RegionPlan, plan: str, why: str) -> RegionPlan:
    return msgspec.structs.replace(r, rejected=(Rejected(plan, why, {}), *r.rejected))


def _obeyed(n: NamedRegion, entry: Shipped, target: Target) -> SchedulePlan:
    """The plan of an entry in the names of a Region. Raises TatamiError if the Region does not obey it."""
    (choice,) = obeyed_choices((Guarded((), read_plan(entry.document, entry.case)),), n.region)
    form = n.lying if isinstance(choice.plan, Scalar | CpuRows) else n.region
    faults = verify_plan(choice.plan, form, target)
    if faults:
        raise TatamiError(*faults)
    return choice.plan


def _conditions(n: NamedRegion, names: Renaming, sizes: Mapping[str, int]) -> Iterator[Condition]:
    """The conditions of the sizes that the axes of a Region have."""
    used = {name for size in all_axes(n.region).values() for name in free_vars(size)}
    for old, new in names.symbols.items():
        if old in used and sizes[new]:
            yield Condition(var(old), 1, sizes[new], sizes[new])
