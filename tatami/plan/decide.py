"""Decisions of the user: plan documents, obeyed or refused with reasons (design §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, assert_never, get_args

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import from_builtins
from tatami.core.diagnostic import Diagnostic, diagnostic, fail, raise_errors
from tatami.core.kernel import Condition
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.plan.cpu.contraction import CONTRACTION
from tatami.plan.cpu.loops import EVERY
from tatami.plan.cpu.streaming import STREAMING
from tatami.plan.cpu_kinds import cpu_kind_of
from tatami.plan.ir import (
    AUTO_STAGES,
    CpuContraction,
    CpuPlan,
    CpuRows,
    CpuSplit,
    GpuStream,
    GpuSync,
    Guarded,
    Scalar,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
)
from tatami.plan.key import plan_key, target_class
from tatami.plan.rename import obeyed_choices
from tatami.plan.verify import SPLIT_ALONE
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Program, Region
from tatami.region.views.canonical_key import canonical
from tatami.region.views.kinds import Kind, contractions, kind_of
from tatami.region.views.row_groups import within_a_group

MMA_FIELDS = frozenset({"tile", "stages", "bind", "warp_tile"})
"""Fields by which a document of the spec's MMA plans is recognised."""


Choices: TypeAlias = tuple[Guarded, ...]
"""Plans of one Region, the last without conditions."""


class Decided:
    """Decided plans by key, and the plans without one."""

    def __init__(self, target: Target, plans: Mapping[str, Choices], keyless: Choices | None) -> None:
        self.target = target
        self.plans = plans
        self.keyless = keyless
        self.only: str = ""

    def decides(self, key: str) -> bool:
        """True if a decision fixes the plans for this key."""
        return key in self.plans or (self.keyless is not None and key == self.only)

    def choices_for(self, region: Region, lying: Region, key: str, sizes: Mapping[str, int]) -> Choices | None:
        """The decided plans of this Region, checked; None if there is no decision. Raises TatamiError if they cannot be
        obeyed. `lying`: the Region with its values as they lie in memory, against which plans of loops are checked. `sizes`
        are those at which estimates choose what a plan leaves open."""
        if not self.decides(key):
            return None
        choices = self.plans.get(key) or self.keyless
        assert choices is not None
        choices = obeyed_choices(choices, region)
        if self.target.kind == "cuda":
            from tatami.plan.gpu.decided import with_stages

            choices = tuple(msgspec.structs.replace(c, plan=with_stages(c.plan, region, self.target, sizes)) for c in choices)
        if len(choices) > 1 and any(isinstance(c.plan, CpuSplit) for c in choices):
            raise fail("InvalidPlan", region.name, SPLIT_ALONE, "decide one plan, or none that splits it")
        known = canonical(region)[1].symbols
        for c in choices:
            raise_errors(verify_plan(c.plan, lying if isinstance(c.plan, Scalar | CpuRows) else region, self.target))
            for name in sorted({n for x in c.conditions for n in free_vars(x.size)} - known.keys()):
                why = f"a condition speaks of {name!r}, which is not a size of the Region"
                raise fail("InvalidPlan", region.name, why, f"sizes: {', '.join(known) or 'none is symbolic'}")
        return choices


def apply_decisions(region: Module[Program], target: Target, decisions: Mapping[str, Any]) -> Decided:
    """Read plan documents. A plan without a key applies to the only Region of its kind. Raises TatamiError if there are none
    or several."""
    plans = {key: read_choices(value, key) for key, value in decisions.items() if key}
    keyless = read_choices(decisions[""], "plan") if "" in decisions else None
    out = Decided(target, plans, keyless)
    if keyless is None:
        return out
    plan = keyless[-1].plan
    wanted = kinds_of_plan(plan)
    regions = [item for p in region.programs.values() for item in p.body if isinstance(item, Region)]
    fitting = [r for r in regions if kind_of(r) in wanted or (isinstance(plan, Sm80Mma | Sm90Mma) and within_a_group(r))]
    if not fitting and isinstance(plan, CpuContraction):
        fitting = [r for r in regions if kind_of(r) == "rows" and len(contractions(r)) == 1]  # a vector by a matrix
    keys = sorted({plan_key(r, target) for r in fitting})
    if len(keys) != 1:
        kinds = " or ".join(sorted(wanted))
        raise fail(
            "InvalidPlan",
            "plan",
            f"a plan without a key applies to the only Region of its kind; {len(keys)} different Regions are {kinds}",
            f"key it by one of: {', '.join(keys) or 'no Region fits'}",
        )
    out.only = keys[0]
    return out


def stale_decisions(region: Module[Program], target: Target, decisions: Mapping[str, Any]) -> list[Diagnostic]:
    """A warning for each key that names no Region of this program, except keys for other targets."""
    present = {plan_key(item, target) for p in region.programs.values() for item in p.body if isinstance(item, Region)}
    mine = f"@{target_class(target)}"
    return [
        diagnostic("StaleDecision", key, "no Region of this model has that key", "remove it, or plan the model again")
        for key in sorted(decisions)
        if key and key not in present and key.endswith(mine)
    ]


def kinds_of_plan(plan: SchedulePlan) -> frozenset[Kind]:
    """Kinds of Regions to which a plan without a key may apply."""
    if isinstance(plan, CpuPlan):
        return cpu_kind_of(plan).regions
    match plan:
        case Sm80Mma() | Sm90Mma() | GpuSync():
            return CONTRACTION.regions
        case Sm80Pair() | Sm90Pair():
            return STREAMING.regions
        case GpuStream():
            return EVERY
        case _:
            assert_never(plan)


def read_choices(value: Any, at: str) -> Choices:
    """A plan, or several with their conditions: the first whose conditions hold is used. Raises TatamiError InvalidDocument."""
    if not isinstance(value, list | tuple):
        return (Guarded((), read_plan(value, at)),)
    choices = []
    for number, item in enumerate(value):
        here = f"{at}: choice {number}"
        if isinstance(item, Guarded):
            choices.append(item)
            continue
        if not isinstance(item, dict) or item.keys() != {"conditions", "plan"}:
            raise fail("InvalidDocument", here, "it is not an object with conditions and a plan", "give it both")
        conditions = from_builtins(item["conditions"], tuple[Condition, ...], here)
        choices.append(Guarded(conditions, read_plan(item["plan"], here)))
    if not choices or [c for c in choices if not c.conditions] != choices[-1:]:
        raise fail("InvalidDocument", at, "the last choice, and no other, has no conditions", 'give the last "conditions": []')
    return tuple(choices)


def read_plan(value: Any, at: str) -> SchedulePlan:
    """A plan document. The spec's form (spec 3 §8.1) has `arch` instead of `kind`. Raises TatamiError InvalidDocument."""
    if isinstance(value, SchedulePlan):
        return value
    if not isinstance(value, dict):
        raise fail("InvalidDocument", at, "a plan is an object", "see `tatami schema plan`")
    value = dict(value)
    kinds: dict[str, Any] = {kind.__struct_config__.tag: kind for kind in get_args(SchedulePlan)}
    if "kind" not in value and value.keys() >= MMA_FIELDS | {"arch"}:
        value["kind"] = f"{value['arch']}_mma"
    if "algo" in value or value.get("kind") not in kinds:
        raise fail(
            "InvalidDocument", at, f"plan kind {value.get('kind')!r} is not known", f"the kinds are {', '.join(sorted(kinds))}"
        )
    kind = kinds[value["kind"]]
    allowed = {"kind"} | {f.encode_name for f in msgspec.structs.fields(kind)}
    unknown = sorted(set(value) - allowed)
    if unknown:
        raise fail("InvalidDocument", at, f"unknown plan field {unknown[0]!r}", f"the fields are {', '.join(sorted(allowed))}")
    if value.get("stages") == "auto" and "stages" in kind.__struct_fields__:
        value["stages"] = AUTO_STAGES
    elif value.get("stages") == AUTO_STAGES:
        raise fail("InvalidDocument", at, f"stages {AUTO_STAGES} is not a number of slots", 'give a number, or "auto"')
    plan: SchedulePlan = from_builtins(value, kind, at)
    return plan
