"""The Regions of a program that are worth tuning, and the search of one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tatami.core.codec import to_builtins
from tatami.decisions import Decisions
from tatami.ledger.records import Subject
from tatami.plan.choose import estimate_at
from tatami.runtime.building.cache import content_key
from tatami.search.context import Context, seconds_of
from tatami.search.cut import Place, cut, places, port_bytes
from tatami.search.guarded import behind_sizes
from tatami.search.journal import Change, Visit
from tatami.search.measuring.measurer import Measurer
from tatami.search.measuring.noise import ratios
from tatami.search.proposal import Proposal
from tatami.search.strategy import Candidate, Result, Search, candidate, worth_measuring
from tatami.search.suggesters.tiling import tiling
from tatami.search.whole import Times
from tatami.storage.dump import write_dump

LEAST_SHARE = 0.005
"""Share of the program's time below which a Region is not tuned."""
Clocks = Mapping[str, Sequence[float]]
"""Kernel -> its seconds, a number per turn."""


@dataclass
class Job:
    """One subject of the search: the Regions that have the same key and sizes. `share`: of the program's time."""

    place: Place
    names: list[str]
    share: float
    candidates: list[Candidate]
    own: Decisions
    subject: Subject

    @property
    def proposals(self) -> str:
        """A hash of what a search of it looks at."""
        return content_key(["proposals", *(c.key for c in self.candidates)])[:32]


@dataclass
class Win:
    """A winner of a Region's search, with the fragment for the program's decisions."""

    job: Job
    candidate: Candidate
    ratio: float
    decision: Decisions

    @property
    def saved(self) -> float:
        """Share of the program's time that it saves, if its kernels gain there what they gain alone."""
        return self.job.share * (1 - self.ratio)

    def shows(self, before: Clocks, after: Clocks) -> bool:
        """True if the Region's kernels are faster in the program too, by the median of the turns."""
        own, other = self.times(before), self.times(after)
        return min(own) > 0 and median(ratios(own, other)) < 1

    def times(self, clocked: Clocks) -> list[float]:
        """Seconds of the Region's kernels in each turn."""
        turns = len(next(iter(clocked.values())))
        each = [{k: taken[t] for k, taken in clocked.items()} for t in range(turns)]
        return [sum(seconds_of(n, times) for n in self.job.names) for times in each]

    def change(self, before: Clocks, after: Clocks) -> Change:
        """The row of the table about it."""
        names = tuple(n.removeprefix("main/") for n in self.job.names)
        seconds = median(self.times(before)), median(self.times(after))
        return Change(names, self.job.place.key, *seconds, plan_words(self.job.place), self.candidate.proposal.line)


def jobs(context: Context, times: Times) -> list[Job]:
    """The different Regions that are worth tuning, the largest share first. `times`: seconds of each kernel."""
    compilation = context.compilation
    total = sum(times.values()) or 1.0
    by_subject: dict[str, list[Proposal]] = {}
    decided = context.decided_plans()
    for p in tiling(compilation, context.sizes):
        if not decided.decides(p.subject):
            by_subject.setdefault(p.subject, []).append(p)
    every = list(places(compilation, context.sizes))
    data = sum(sum(port_bytes(p)) for p in {p.form: p for p in every}.values())
    found: dict[object, Job] = {}
    for place in every:
        proposals = by_subject.get(place.key)
        if not proposals:
            continue
        name = f"{place.program}/{place.region.name}"
        share = seconds_of(name, times) / total
        if place.form in found:
            job = found[place.form]
            job.names.append(name)
            job.share += share
            continue
        own = Decisions(plans={place.key: place.decision()})
        caches = "cold" if _is_met_cold(place, data, compilation.target.l3_bytes) else "warm"
        subject = context.subject_of(place.measured_key, place.sizes, caches)
        usable = [p for p in worth_measuring(proposals, context.correct) if behind_sizes(place, p.decision) is not None]
        found[place.form] = Job(place, [name], share, [candidate(p, p.decision, own) for p in usable], own, subject)
    wanted = [j for j in found.values() if j.share >= LEAST_SHARE and j.candidates]
    return sorted(wanted, key=lambda j: -j.share)


def _is_met_cold(place: Place, data: int, cache: int) -> bool:
    """True if the program uses more data than the last cache holds between two runs of the kernel, and a good part of what the
    kernel reads are constants, which nothing has read since."""
    constant, other = port_bytes(place)
    return cache > 0 and data > cache and 4 * constant >= constant + other


@dataclass(frozen=True)
class Spot:
    """Resources that the search of one Region has for itself. `folder`: for its program; `lock`: for what searches at the same time share."""

    measurer: Measurer
    folder: Path
    lock: AbstractContextManager[object]


def search_region(context: Context, job: Job, spot: Spot, until: float) -> tuple[Win | None, bool]:
    """(the winner of one Region, True if the search came to its end)."""
    compilation = context.compilation
    name = job.names[0].removeprefix("main/")
    with spot.lock:
        known = context.records.winner(job.subject, job.proposals)
        if known is not None:
            return _win(job, known[0], known[1]), True
        if time.monotonic() >= until:
            return None, False
        context.say(name)
        write_dump(spot.folder, {"region": cut(compilation, job.place)}, ["region"], compilation.target)
    flush = 2 * compilation.target.l3_bytes if job.subject.caches == "cold" else 0
    spot.measurer.reopen(context.opened(spot.folder, job.place.sizes, flush))
    search = Search(
        job.subject,
        job.own,
        spot.measurer,
        context.records,
        until,
        context.patience,
        lambda text: context.say(f"{name}: {text}"),
        context.options.seed,
    )
    try:
        found = _searched(context, job, search)
    finally:  # the ledger has the verdicts, so that no later search meets these faults again
        with spot.lock:
            context.measured += search.measured
            for c, outcome in search.faults:
                line = c.proposal.line if c is not None else "the compiler's own decision"
                context.report(line, name, outcome, spot.folder, c.decision if c is not None else job.own)
    winner = found.winner.key if found.winner is not None else ""
    with spot.lock:
        if found.is_complete:
            context.records.finish(job.subject, job.proposals, winner, found.ratio)
        return _win(job, winner, found.ratio), found.is_complete


def _searched(context: Context, job: Job, search: Search) -> Result:
    """The search of one Region. The winner of a merged ledger is tested first: if its winner wins here too, the others are not
    measured; if it says that none wins, that is believed, since the compiler's own plan is right and known."""
    told = context.records.merged_winner(job.subject, job.proposals)
    if told == "":
        return Result(None, None, 0, is_complete=True)
    first = [c for c in job.candidates if c.key == told]
    if first:
        found = search.run(first)
        if found.winner is not None or not found.is_complete:
            return found
    return search.run(job.candidates)


def visit_of(context: Context, job: Job, win: Win | None) -> Visit:
    """The entry of the journal about one Region."""
    place = job.place
    facts = context.compilation.stages["poly_core"].programs[place.program].regions
    own = next(f for f in facts if f.region == place.region.name)
    estimate = estimate_at(place.region, own, place.choices[-1], context.compilation.target, context.sizes).get("total")
    winner = win.candidate.key if win is not None else ""
    words = plan_words(place)
    names = tuple(job.names)
    return Visit("plans", "", names, place.key, job.share, words, estimate, job.subject, winner, context.gain)


def _win(job: Job, winner: str, ratio: float | None) -> Win | None:
    c = next((c for c in job.candidates if c.key == winner), None)
    decision = behind_sizes(job.place, c.decision) if c is not None else None
    if c is None or decision is None or ratio is None:
        return None
    return Win(job, c, ratio, decision)


def joined(decisions: Sequence[Decisions]) -> Iterator[Decisions]:
    """Decisions of which several may be about one key: choices behind guards of different sizes follow each other."""
    plans: dict[str, object] = {}
    for d in decisions:
        for key, value in d.plans.items():
            before = plans.get(key)
            if isinstance(before, list | tuple) and isinstance(value, list | tuple):
                plans[key] = [*value[:1], *before]
            else:
                plans[key] = value
        yield Decisions(d.partitions, {}, d.calls)
    yield Decisions(plans=plans)


def plan_words(place: Place) -> str:
    """The kind of the plan that a Region has now, with its fields that are numbers or words."""
    plan = place.choices[-1].plan
    value = to_builtins(plan)
    kept = {k: v for k, v in value.items() if k != "kind" and isinstance(v, int | str | bool) and v not in ("", 0, False)}
    return " ".join([str(value.get("kind", type(plan).__name__)), *(f"{k}={v}" for k, v in kept.items())])[:120]
