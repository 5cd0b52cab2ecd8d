"""The report of a compilation as data, for programs (`tatami explain --json`) and for a tree (`tatami explain --tree`).

    kernel r0 of main
      nodes      batch_norm_1.conv, relu_2       what of the model it computes
      plan       cpu_contraction n16, 37.7 us    and rejected ones, each with its reason
      fused      n16 -> n19 epilogue             edges inside the kernel
      borders    n20 -> n22 epilogue_reduce      edges to other kernels, with the rule or the cost that kept them apart

`report/explain.py` prints the same facts as text, by subject."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tatami.compilation import Compilation
from tatami.core.cost import estimate
from tatami.core.diagnostic import Diagnostic
from tatami.core.kernel import condition_text
from tatami.plan.ir import RegionPlan
from tatami.plan.show import name_plan
from tatami.region.ir import Step
from tatami.region.partition_ir import Verdict
from tatami.report.copies import moves
from tatami.report.explain import KernelOrigin, kernel_origins
from tatami.stages import UP_TO_REGION, UP_TO_TINY


class ExplainedPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan that a kernel has, or a rejected candidate (`why` then says the reason). `estimate`: terms in seconds, and counts."""

    plan: str
    estimate: dict[str, float] = {}
    conditions: tuple[str, ...] = ()
    why: str = ""


class ExplainedEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge between two values of the model: inside a kernel, or between two (`kernel` is the other one)."""

    producer: str
    consumer: str
    rule: str
    delta_seconds: float = 0.0
    why: str = ""
    kernel: str = ""


class ExplainedKernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kernel. `sources`: the importer's names of what it computes; `nodes`: names in the graph; `tuned`: dates and times of the
    plans that a table of measured plans gave."""

    program: str
    name: str
    kind: str
    sources: tuple[str, ...]
    nodes: tuple[str, ...]
    plans: tuple[ExplainedPlan, ...] = ()
    rejected: tuple[ExplainedPlan, ...] = ()
    fused: tuple[ExplainedEdge, ...] = ()
    borders: tuple[ExplainedEdge, ...] = ()
    tuned: tuple[str, ...] = ()


class ExplainedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step without a kernel: a call, a branch, a loop, or work in Python; `finds`: sizes that it decides."""

    program: str
    name: str
    kind: str
    targets: tuple[str, ...]
    finds: tuple[str, ...] = ()


class ExplainedCopy(msgspec.Struct, frozen=True):
    """An instruction that only moves elements. `bytes`: read and written, at the default sizes."""

    program: str
    name: str
    bytes: float
    why: str


class Explanation(msgspec.Struct, frozen=True):
    """The report of a compilation."""

    target: str
    kernels: tuple[ExplainedKernel, ...]
    steps: tuple[ExplainedStep, ...]
    copies: tuple[ExplainedCopy, ...]
    warnings: tuple[Diagnostic, ...]


def explanation(compilation: Compilation) -> Explanation:
    """The report, from the stages that exist; a document of a late stage has no fusion to tell of."""
    origins = kernel_origins(compilation)
    is_step = {
        (p, i.name) for p, body in compilation.stages["region"].programs.items() for i in body.body if isinstance(i, Step)
    }
    return Explanation(
        compilation.target.name,
        tuple(_kernels(compilation, [k for k in origins if (k.program, k.name) not in is_step])),
        tuple(_steps(compilation)),
        tuple(_copies(compilation)),
        tuple(compilation.warnings),
    )


def _kernels(compilation: Compilation, origins: list[KernelOrigin]) -> Iterator[ExplainedKernel]:
    plans = compilation.stages["plan"].programs if "plan" in compilation.stages else {}
    by_region = {(p, r.region): r for p, plan in plans.items() for r in plan.regions}
    edges = _edges(compilation)
    for k in origins:
        key = (k.program, k.name)
        fused, borders = edges.get(key, ([], []))
        planned = by_region.get(key)
        chosen, rejected = _plans(planned)
        tuned = planned.tuned if planned is not None else ()
        yield ExplainedKernel(*key, k.kind, k.sources, k.nodes, chosen, rejected, tuple(fused), tuple(borders), tuned)


def _plans(region: RegionPlan | None) -> tuple[tuple[ExplainedPlan, ...], tuple[ExplainedPlan, ...]]:
    if region is None:
        return (), ()
    chosen = [
        ExplainedPlan(name_plan(c.plan), c.estimate, tuple(condition_text(x) for x in c.conditions)) for c in region.choices
    ]
    return tuple(chosen), tuple(ExplainedPlan(r.plan, r.estimate, why=r.why) for r in region.rejected)


def _edges(compilation: Compilation) -> dict[tuple[str, str], tuple[list[ExplainedEdge], list[ExplainedEdge]]]:
    """(program, kernel) -> edges inside it, edges to and from others."""
    out: dict[tuple[str, str], tuple[list[ExplainedEdge], list[ExplainedEdge]]] = {}
    if compilation.first not in UP_TO_TINY or "partition" not in compilation.stages:
        return out
    for program, partition in compilation.stages["partition"].items():
        regions = compilation.stages["region"]
        origins = regions.origins.get(program, {})
        kernel_of = {value: item.name for item in regions.programs[program].body for value in origins.get(item.name, ())}
        for v in partition.verdicts:
            ends = [kernel_of.get(v.producer, ""), kernel_of.get(v.consumer, "")]
            for own, other in (ends, ends[::-1]) if ends[0] != ends[1] else (ends,):
                inside, outside = out.setdefault((program, own), ([], []))
                (inside if own == other else outside).append(_edge(v, "" if own == other else other))
    return out


def _edge(v: Verdict, kernel: str) -> ExplainedEdge:
    return ExplainedEdge(v.producer, v.consumer, v.rule, v.delta_seconds, v.why, kernel)


def _steps(compilation: Compilation) -> Iterator[ExplainedStep]:
    for program, body in compilation.stages["region"].programs.items():
        for s in body.body:
            if isinstance(s, Step):
                yield ExplainedStep(program, s.name, s.kind, tuple(s.targets), tuple(s.new_symbols))


def _copies(compilation: Compilation) -> Iterator[ExplainedCopy]:
    made = compilation.stages
    if "execution" not in made or "realised" not in made:
        return
    if made.get_made("realised") is None and compilation.first not in UP_TO_REGION:
        return
    execution = made["execution"]
    for m in moves(execution, made["realised"]):
        yield ExplainedCopy(m.program, m.name, estimate(m.bytes, execution.programs[m.program].signature.defaults), m.why)
