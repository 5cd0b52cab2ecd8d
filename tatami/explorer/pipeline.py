"""The simulated pipelines of GPU kernels as time lines: what each role waits for, and when each unit works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tatami.compilation import Compilation
from tatami.explorer import ir
from tatami.plan.gpu.timeline import Timeline, timeline
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.plan.named_region import constant_tensors, named_regions
from tatami.plan.simulation.roles import Span
from tatami.report.timings import choices_at


def pipelines(compilation: Compilation, sizes: Mapping[str, int]) -> dict[str, ir.Pipeline]:
    """Key of a plan -> its time line, for the products of a GPU program: of the choice that runs at these sizes."""
    stages, target = compilation.stages, compilation.target
    if target.kind != "cuda" or "plan" not in stages:
        return {}
    out: dict[str, ir.Pipeline] = {}
    region, core = stages["region"], stages["poly_core"]
    arguments, chosen = constant_arguments(region), choices_at(compilation, sizes)
    for name, program in region.programs.items():
        plans = stages["plan"].programs[name]
        constants = constant_tensors(region, name) | frozenset(arguments.get(name, ()))
        named = named_regions(program, core.programs[name], plans.layouts, constants)
        for r, n in zip(plans.regions, named, strict=True):
            if r.key not in out and n.region.opaque is None and r.choices:
                found = timeline(chosen[name, r.region].plan, n.lying, target, sizes)
                if isinstance(found, Timeline):
                    out[r.key] = _pipeline(found, target.clock)
    return out


def _pipeline(found: Timeline, clock: float) -> ir.Pipeline:
    lanes: dict[str, list[Span]] = {}
    for s in found.spans:
        lanes.setdefault(s.lane, []).append(s)
    tokens = tuple(sorted({s.token for s in found.spans if s.token}))
    numbers = {t: k for k, t in enumerate(tokens)} | {"": -1}
    roles = {s.lane for s in found.spans if s.token} | {n for n in lanes if n.startswith(ROLES)}
    made = [ir.Lane(n, n in roles, _joined(sorted(s, key=lambda x: x.start), numbers)) for n, s in lanes.items()]
    ordered = sorted(made, key=lambda lane: (not lane.is_role, lane.name))
    return ir.Pipeline(tuple(ordered), tokens, found.cycles, clock, found.tiles, found.blocks, found.of_blocks)


ROLES = ("producer", "consumer", "threads", "group", "products")
"""Beginnings of the names of roles; other lanes are units."""


def _joined(spans: Sequence[Span], numbers: Mapping[str, int]) -> tuple[tuple[int, int, int], ...]:
    """Spans in whole cycles; those that follow one another and say the same are one."""
    out: list[tuple[int, int, int]] = []
    for s in spans:
        start, end, token = round(s.start), round(s.end), numbers[s.token]
        if out and out[-1][2] == token and start <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(end, out[-1][1]), token)
        elif end > start:
            out.append((start, end, token))
    return tuple(out)
