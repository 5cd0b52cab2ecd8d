"""The document of a page, made from a compilation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import msgspec

import tatami
from tatami.compilation import Compilation, decisions_of
from tatami.core.codec import to_builtins
from tatami.core.lines import Line
from tatami.core.module import Module
from tatami.core.signature import Signature, symbols
from tatami.explorer import ir
from tatami.explorer.graph import graphs
from tatami.explorer.kernels import kernels
from tatami.explorer.links import link_all
from tatami.explorer.memory import memory
from tatami.explorer.pipeline import pipelines
from tatami.explorer.things import Catalogue
from tatami.explorer.times import Measured, with_times
from tatami.plan.usual_sizes import USUAL
from tatami.report.explain import explain
from tatami.report.playback import Playback, StageResult
from tatami.report.timings import estimate_sizes, stated_peaks
from tatami.runtime.cores import thread_count
from tatami.stages import STAGES, stage

LONGEST_LINE = 2000
"""Maximum characters of a line in a page: a longer one (a table of constants in C) is cut, and ends in the number left out."""


def explored(
    compilation: Compilation,
    name: str,
    source: str = "",
    sizes: Mapping[str, int] | None = None,
    measured: Measured | None = None,
) -> ir.Explored:
    """The document of a page. `name`: the model's, as a title; `source`: its text, if it is one; `sizes`: values of size symbols,
    usual ones for others. Raises TatamiError for the target `reference`, which has no stages to show."""
    values = compilation.values()
    things = Catalogue()
    things.add("source", _source(values.get("frontend"), source))
    for s in STAGES:
        if s.name in values:
            things.add(s.name, map(_cut, _lines(s.name, values[s.name])))
    link_all(things, compilation.stages)
    at = {**_usual(values), **estimate_sizes(compilation), **compilation.hints, **(sizes or {})}
    rows = kernels(compilation, things, at)
    threads = thread_count()
    page = ir.Explored(
        tatami=tatami.__version__,
        model=name,
        target=compilation.target.name,
        sizes=dict(sorted(at.items())),
        stages=tuple(things.stages),
        things=things.things(),
        kernels=tuple(rows),
        graphs=graphs(values.get("frontend"), things, rows),
        memory=tuple(memory(compilation.stages["execution"], things, at, threads)),
        peaks=_stated(compilation),
        decisions=to_builtins(decisions_of(compilation.stages)),
        warnings=tuple(map(str, compilation.warnings)),
        report=explain(compilation),
        pipelines=pipelines(compilation, at),
    )
    return page if measured is None else with_times(page, measured)


def with_checks(page: ir.Explored, played: Playback) -> ir.Explored:
    """The page with the results of playback."""
    return msgspec.structs.replace(page, checks=tuple(map(_check, played.results)))


def _check(r: StageResult) -> ir.Check:
    error = max((a.error for a in r.agreements), default=0.0)
    d = next((a.difference for a in r.agreements if a.difference is not None), None)
    if d is None:
        return ir.Check(r.stage, error, skipped=r.skipped)
    text = f"{d.output} at {list(d.index)}: {d.value} instead of {d.expected} ({d.count} elements)"
    return ir.Check(r.stage, error, d.output, text)


def _lines(name: str, value: Module[object]) -> Iterator[Line]:
    lines: Iterator[Line] = import_module(f"tatami.{stage(name).layer}.show").show_lines(value)
    return lines


def _stated(compilation: Compilation) -> ir.Peaks:
    p = stated_peaks(compilation.target)
    return ir.Peaks(p.flops, p.memory, p.cache, measured=False)


def _cut(line: Line) -> Line:
    if len(line.text) <= LONGEST_LINE:
        return line
    parts = (
        p if len(p) <= LONGEST_LINE else f"{p[:LONGEST_LINE]} … {len(p) - LONGEST_LINE} more" for p in line.text.split("\n")
    )
    return Line("\n".join(parts), line.of)


def _source(frontend: Module[object] | None, text: str) -> Iterator[Line]:
    """The model's own text, each line a thing by its number; without one, each place that the importer names."""
    if text:
        yield from (Line(line, (str(number),)) for number, line in enumerate(text.splitlines(), 1))
        return
    places = (p for o in frontend.origins.values() for found in o.values() for p in found) if frontend is not None else ()
    yield from (Line(place, (place,)) for place in dict.fromkeys(places))


def _usual(values: Mapping[str, Module[object]]) -> dict[str, int]:
    """A value for each size symbol of the model: the usual one that its signature gives, else the planner's."""
    signatures = (getattr(m.programs.get("main"), "signature", None) for m in values.values())
    found: Signature | None = next((s for s in signatures if s is not None), None)
    return {} if found is None else dict.fromkeys(symbols(found), USUAL) | dict(found.defaults)


def source_text(model: str) -> str:
    """The text of a model that is a text (.harp), else empty."""
    path = Path(model)
    return path.read_text(encoding="utf-8", errors="replace") if path.suffix.lower() == ".harp" else ""
