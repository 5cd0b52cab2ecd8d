"""The compilation of a model: its stages, made on demand, and its decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tatami.core.codec import to_builtins
from tatami.core.diagnostic import Diagnostic, diagnostic, fail
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.decisions import Decisions
from tatami.observer import Observer
from tatami.stages import STAGES, Stages, runner

if TYPE_CHECKING:
    from tatami.execution.ir import ExecutionPlan


@dataclass(frozen=True)
class StoredProgram:
    """The parts of a compiled program that loading needs: its instructions, the constants they read, the shared object.

    `warnings`: findings of the verifiers when it was made. `runtime`: the library that it uses, if it came with one
    (`runtime/cpu/pool.py`)."""

    execution: Module[ExecutionPlan]
    library: bytes
    library_key: str
    warnings: tuple[Diagnostic, ...] = ()
    runtime: bytes | None = None


class Compilation:
    """A model with its stages (made on demand), their times and warnings."""

    def __init__(
        self,
        stages: Stages,
        observer: Observer,
        target: Target,
        decisions: Decisions,
        hints: Mapping[str, int] | None = None,
    ) -> None:
        self.stages = stages
        self.observer = observer
        self.target = target
        self.decisions = decisions
        self.hints = dict(hints or {})
        """The usual values of sizes, for which plans are chosen."""
        self.overridable: tuple[str, ...] = ()
        """Constants of the model in whose place a caller may pass an array."""
        self.program: StoredProgram | None = None
        """The compiled program, once it was made or found; the stages behind one that was found are not made."""

    @property
    def first(self) -> str:
        """The earliest stage that was given and need not be computed."""
        return next(s.name for s in STAGES if self.stages.get_made(s.name) is not None)

    def values(self) -> dict[str, Module[Any]]:
        """All stages from the first given one on, in order; stages that do not exist yet are made."""
        order = [s.name for s in STAGES]
        start = order.index(self.first)
        return {n: self.stages[n] for n in order[start:] if n in self.stages}

    @property
    def warnings(self) -> list[Diagnostic]:
        """Warnings of the importer and of the verifiers of all made stages, and decisions that nothing matches."""
        found = [*self.observer.of_model, *self.program_warnings()]
        return [d for k, d in enumerate(found) if d not in found[:k]]

    def program_warnings(self) -> list[Diagnostic]:
        """Warnings about the program, whichever model file it comes from."""
        stored = self.program.warnings if self.program is not None else ()
        found = [*stored, *self.observer.warnings, *unmet_decisions(self.decisions, self.stages, self.target)]
        return [d for k, d in enumerate(found) if d not in found[:k]]

    @property
    def meaning(self) -> str | None:
        """The given document that target `reference` runs: the last that computes. None: the plan made from the frontend, or given
        with operations of its own."""
        given = [s.name for s in STAGES if s.runs and s.name in self.stages.given]
        return given[-1] if given and given[-1] != "frontend" else None

    def reference_run(
        self, inputs: Mapping[str, object], sizes: Mapping[str, int], mode: str = "float64", observe: object = None
    ) -> dict[str, Any]:
        """The outputs of the first made stage that computes, by name, in `mode`. `observe` sees every value. Raises
        UnknownName if no made stage computes."""
        for s in STAGES:
            value = self.stages.get_made(s.name)
            run = runner(s.name) if value is not None else None
            if run is not None:
                return run(value, dict(inputs), dict(sizes), mode=mode, observe=observe)
        raise fail("UnknownName", "reference", "none of the stages given computes", "give the folder of a dump that has them")


def unmet_decisions(decisions: Decisions, stages: Stages, target: Target) -> list[Diagnostic]:
    """Warnings for decisions and layouts that nothing in this program matches; only made stages are compared."""
    found: list[Diagnostic] = []
    region, tiny = stages.get_made("region"), stages.get_made("tiny")
    if region is not None and decisions.plans:
        from tatami.plan.decide import stale_decisions

        found += stale_decisions(region, target, decisions.plans)
    plan = stages.get_made("plan")
    if region is not None and plan is not None:
        from tatami.plan.memory.swizzled import unused_swizzles

        found += unused_swizzles(region, plan)
    if tiny is not None and decisions.partitions:
        from tatami.region.fusion.partition import program_key

        present = {program_key(p) for p in tiny.programs.values()}
        found += [
            diagnostic(
                "UnknownDecision",
                f"partitions: {key}",
                "no program of this model has that key",
                "remove it, or partition the model again",
            )
            for key in sorted(set(decisions.partitions) - present)
        ]
    verdicts = stages.get_made("calls")
    if verdicts is not None:
        present = {v.key for v in verdicts.values()} | {""}
        found += [
            diagnostic("UnknownDecision", f"calls: {key}", "no called graph of this model has that key", "remove it")
            for key in sorted(set(decisions.calls) - present)
        ]
    return found


def decisions_of(stages: Stages) -> Decisions:
    """The decisions of a compilation, in the form that repeats them."""
    from tatami.plan.rename import kept_choices
    from tatami.region.fusion.partition import program_key
    from tatami.region.ir import Region

    partitions: dict[str, Any] = {}
    plans: dict[str, Any] = {}
    if stages.get_made("tiny") is not None and "partition" in stages:
        for name, partition in stages["partition"].items():
            partitions[program_key(stages["tiny"].programs[name])] = to_builtins(partition)
    if "plan" in stages:
        for name, program in stages["plan"].programs.items():
            regions = {r.name: r for r in stages["region"].programs[name].body if isinstance(r, Region)}
            for r in program.regions:
                plans[r.key] = to_builtins(kept_choices(r.choices, regions[r.region]))
    calls: dict[str, Literal["inline", "call"]] = {}
    if stages.get_made("frontend") is not None and "calls" in stages:
        calls = {v.key: "inline" if v.inlined else "call" for v in stages["calls"].values()}
    return Decisions(partitions, plans, calls)
