"""All plans that a Region can have, each with its estimate or the rule that refuses it: what a search measures.

`choose` estimates few of them, since it runs in every compilation; these are made on demand. A plan is offered only if a
decision with it is obeyed by every Region that has its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.decisions import Decisions
from tatami.plan.choose_cpu import asked, cpu_alternatives
from tatami.plan.ir import Candidate, CpuRows, Guarded, ProgramPlan, Rejected, Scalar
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.plan.named_region import NamedRegion, constant_tensors, named_regions
from tatami.plan.rename import inverse, kept_choices, obeyed_choices, rename_plan
from tatami.plan.usual_sizes import usual_sizes
from tatami.plan.verify_plan import verify_plan
from tatami.poly_core.ir import PolyCore
from tatami.region.ir import Program, Region


@dataclass(frozen=True)
class Alternatives:
    """The plans of all Regions that have one key, in the names of `region`, the first of them."""

    program: str
    region: Region
    key: str
    chosen: tuple[Guarded, ...]
    """The plans that the Region has now, behind their guards."""
    candidates: tuple[Candidate, ...]
    """Plans that decisions may fix, the fastest by estimate first."""
    refused: tuple[Rejected, ...]

    def decision(self, candidate: Candidate) -> Decisions:
        """The document that fixes a candidate."""
        return Decisions(plans={self.key: to_builtins(kept_choices((Guarded((), candidate.plan),), self.region))})


def plans_of(compilation: Compilation, sizes: Mapping[str, int]) -> Iterator[Alternatives]:
    """The plans of each different Region of a compilation. `sizes`: values of size symbols at which estimates are taken; others
    have the usual ones."""
    stages = compilation.stages
    asked = {**compilation.hints, **sizes}
    return alternatives(stages["region"], stages["poly_core"], stages["plan"], compilation.target, asked)


def alternatives(
    region: Module[Program],
    poly_core: Module[PolyCore],
    plan: Module[ProgramPlan],
    target: Target,
    sizes: Mapping[str, int] | None = None,
) -> Iterator[Alternatives]:
    """The plans of each different Region that is not opaque, in order. `plan`: the chosen ones; `sizes`: values of size
    symbols at which estimates are taken, instead of the signature's."""
    same: dict[str, list[tuple[str, NamedRegion, dict[str, int]]]] = {}
    chosen: dict[str, tuple[Guarded, ...]] = {}
    arguments = constant_arguments(region)
    for name, program in region.programs.items():
        hints = {**usual_sizes(program), **program.signature.defaults, **(sizes or {})}
        constants = constant_tensors(region, name) | frozenset(arguments.get(name, ()))
        planned = plan.programs[name]
        named = named_regions(program, poly_core.programs[name], planned.layouts, constants)
        for n, r in zip(named, planned.regions, strict=True):
            if n.region.opaque is None:
                same.setdefault(r.key, []).append((name, n, hints))
                chosen.setdefault(r.key, r.choices)
    for key, members in same.items():
        name, first, hints = members[0]
        made, refused = _of_region(first, target, first.hints(hints))
        found: list[Candidate] = []
        for c in made:
            if why := next((w for _, n, _ in members if (w := _why_refused(c, first, n, target))), ""):
                refused.append(Rejected(c.line, why, c.estimate))
            else:
                found.append(c)
        yield Alternatives(name, first.region, key, chosen[key], tuple(found), tuple(refused))


def _of_region(n: NamedRegion, target: Target, sizes: Mapping[str, int]) -> tuple[list[Candidate], list[Rejected]]:
    """The plans of one Region, in its own names, and the refused ones. `sizes`: by canonical names."""
    if target.kind == "cuda":
        from tatami.plan.gpu.alternatives import gpu_alternatives

        own = {old: sizes[new] for old, new in n.names.symbols.items() if new in sizes}
        return gpu_alternatives(n.lying, target, own)
    found, refused = cpu_alternatives(asked(n.renamed, n.facts, target, sizes, n.constants))
    back = inverse(n.names)
    return [Candidate(rename_plan(c.plan, back), c.line, c.estimate) for c in found], refused


def _why_refused(c: Candidate, first: NamedRegion, other: NamedRegion, target: Target) -> str:
    """The reason why another Region with the same key cannot obey the plan, or ""."""
    kept = kept_choices((Guarded((), c.plan),), first.region)
    assert not isinstance(kept, tuple)
    (choice,) = obeyed_choices((Guarded((), kept),), other.region)
    form = other.lying if isinstance(choice.plan, Scalar | CpuRows) else other.region
    return next((f"{d.why}: {d.suggestion}" for d in verify_plan(choice.plan, form, target)), "")
