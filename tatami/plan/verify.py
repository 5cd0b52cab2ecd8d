"""Checks of all plans of a module against their Regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.layout import Layout, layout_fault
from tatami.core.module import Module
from tatami.core.target import PRESETS, Target
from tatami.plan.ir import CpuRows, CpuSplit, ProgramPlan, Scalar, SchedulePlan
from tatami.plan.memory.convert import with_layouts
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Program, Region

SPLIT_ALONE = "a plan that splits a Region cannot be one of several guarded plans: its parts are Regions for all sizes"
"""The reason to refuse a split among several guarded plans."""


def verify(plan: Module[ProgramPlan], region: Module[Program]) -> list[Diagnostic]:
    """One plan per Region in order, the last choice of each unconditional, each fitting its Region on the machine that
    the key names."""
    out: list[Diagnostic] = []
    for name, program in region.programs.items():
        if name not in plan.programs:
            out.append(diagnostic("InvalidPlan", name, "the program has no plan", "choose one"))
            continue
        names = [item.name for item in program.body if isinstance(item, Region)]
        planned = [r.region for r in plan.programs[name].regions]
        if names != planned:
            wrong = next((a for a, b in zip([*names, ""], [*planned, ""]) if a != b), "")
            out.append(
                diagnostic("InvalidPlan", f"{name}: {wrong}", "Regions and plans differ", "give each Region one plan, in order")
            )
        regions = {item.name: item for item in program.body if isinstance(item, Region)}
        layouts = plan.programs[name].layouts
        if unfit := list(_unfit_layouts(name, program, layouts)):
            out += unfit
            continue
        lying = {item.name: item for item in with_layouts(program, layouts)[0].body if isinstance(item, Region)}
        for r in plan.programs[name].regions:
            target = target_of(r.key)
            if target is not None and r.region in regions:
                forms = (regions[r.region], lying.get(r.region, regions[r.region]))
                out += [d for c in r.choices for d in _faults(c.plan, forms, target)]
            if not r.choices or r.choices[-1].conditions:
                out.append(
                    diagnostic(
                        "InvalidPlan", r.region, "no plan applies to all sizes", "end the list with a plan without conditions"
                    )
                )
            if len(r.choices) > 1 and any(isinstance(g.plan, CpuSplit) for g in r.choices):
                out.append(diagnostic("InvalidPlan", r.region, SPLIT_ALONE, "give the Region one plan, or none that splits it"))
            for g in r.choices:
                for c in g.conditions:
                    if c.divisor < 1 or c.low < 0 or (c.high and c.high < c.low):
                        out.append(
                            diagnostic("InvalidPlan", r.region, f"condition on {c.size} can never hold", "repair its limits")
                        )
    return out


def _unfit_layouts(name: str, program: Program, layouts: Mapping[str, Layout]) -> Iterator[Diagnostic]:
    """Faults of layouts that say nothing of their values, or are of values that there are not."""
    ranks = {i: len(port.shape) for i, port in zip(program.inputs, program.signature.inputs)}
    ranks |= {t.name: len(t.memref.shape) for item in program.body for t in item.outputs}
    for value, layout in layouts.items():
        at = f"{name}: layout of {value[:40]}"
        if value not in ranks:
            yield diagnostic("InvalidPlan", at, "the program has no such value", "leave it out")
        elif why := layout_fault(layout, ranks[value]):
            yield diagnostic("InvalidPlan", at, why, "write the layout's own fields, or leave it out")


def _faults(plan: SchedulePlan, forms: tuple[Region, Region], target: Target) -> list[Diagnostic]:
    """The faults of a plan. Loops are planned as values lie in memory, which a Region says before or after it is realised."""
    before, after = forms
    found = verify_plan(plan, before, target)
    if found and after is not before and isinstance(plan, Scalar | CpuRows):
        found = min(found, verify_plan(plan, after, target), key=len)
    return found


def target_of(key: str) -> Target | None:
    """The preset for the class of target that a plan's key names; None: there is none."""
    machine, *features = key.partition("@")[2].split("+")
    kind, _, isa = machine.partition(":")
    preset = next((t for t in PRESETS.values() if t.kind == kind and t.isa == isa), None)
    return preset and msgspec.structs.replace(preset, features=tuple(features))
