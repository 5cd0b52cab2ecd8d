"""Checks of all plans of a module against their Regions."""

from __future__ import annotations

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.module import Module
from tatami.plan.ir import ProgramPlan
from tatami.region.ir import Program, Region


def verify(plan: Module[ProgramPlan], region: Module[Program]) -> list[Diagnostic]:
    """One plan per Region in order, the last choice of each unconditional. Whether a schedule fits its Region is
    checked against a target by `verify_plan`."""
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
        for r in plan.programs[name].regions:
            if not r.choices or r.choices[-1].conditions:
                out.append(
                    diagnostic(
                        "InvalidPlan", r.region, "no plan applies to all sizes", "end the list with a plan without conditions"
                    )
                )
            for g in r.choices:
                for c in g.conditions:
                    if c.divisor < 1 or c.low < 0 or (c.high and c.high < c.low):
                        out.append(
                            diagnostic("InvalidPlan", r.region, f"condition on {c.size} can never hold", "repair its limits")
                        )
    return out
