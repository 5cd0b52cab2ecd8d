"""Estimated seconds of Regions with the best plan of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tatami.compilation import Compilation
from tatami.core.module import Module
from tatami.plan.choose import best_plan, estimate_at
from tatami.plan.ir import ProgramPlan
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.plan.named_region import constant_tensors, named_region
from tatami.plan.usual_sizes import usual_sizes
from tatami.poly_core.analyse import facts_of
from tatami.region.ir import Program, Region

Question: TypeAlias = tuple[Region, frozenset[str]]
"""A Region by canonical names, and the constants among its operands."""


class Pricing:
    """The estimates of one program of a compilation at given sizes. Equal Regions are planned once."""

    def __init__(self, compilation: Compilation, name: str, sizes: Mapping[str, int]) -> None:
        stages = compilation.stages
        region: Module[Program] = stages["region"]
        program = region.programs[name]
        self.target = compilation.target
        self.sizes = {**usual_sizes(program), **program.signature.defaults, **compilation.hints, **sizes}
        self.constants = constant_tensors(region, name) | frozenset(constant_arguments(region).get(name, ()))
        self._found: dict[Question, float | None] = {}
        self._regions = {item.name: item for item in program.body if isinstance(item, Region)}
        self._facts = {f.region: f for f in stages["poly_core"].programs[name].regions}
        self._plans: ProgramPlan = stages["plan"].programs[name]

    def of_own(self) -> dict[str, float | None]:
        """Seconds of each Region of the program with the plan that it has, by name; None where the model has no figure."""
        out: dict[str, float | None] = {}
        for r in self._plans.regions:
            found = r.choices[-1].estimate
            if self.target.kind == "cpu" and r.region in self._regions:
                choice, facts = r.choices[-1], self._facts[r.region]
                found = estimate_at(self._regions[r.region], facts, choice, self.target, self.sizes) or found
            out[r.region] = found.get("total")
        return out

    def of_new(self, region: Region) -> float | None:
        """Seconds of a Region that the program does not have, with its best plan. Raises TatamiError if it has none."""
        n = named_region(region, region, facts_of(region), self.constants)
        question = (n.renamed, n.constants)
        if region.opaque is not None or question not in self._found:
            seconds = best_plan(n, self.target, self.sizes, self.constants).estimate.get("total")
            if region.opaque is not None:
                return seconds
            self._found[question] = seconds
        return self._found[question]
