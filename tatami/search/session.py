"""The tuning of one model: its Regions by their share of the time, then the whole program.

    profile     the time of each kernel in the program, with clocks around them
    Regions     the proposals for each different Region, in programs of that Region alone (cut.py, strategy.py)
    whole       the program with all winners against the program without, in turns; a winner that does not show there is dropped

The time of the search is divided among the Regions by their shares of the program's time. Measurements are in the ledger at
once: a search that is interrupted or killed goes on where it was, and equal Regions of other models are not measured again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from tatami.bench.inputs import UNBOUND_SIZE
from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import fail
from tatami.core.signature import symbols
from tatami.decisions import Decisions, decisions_text
from tatami.ledger.records import Records, Subject, decision_text, revision, sizes_text, target_hash
from tatami.report.timings import estimate_sizes
from tatami.runtime.building.cache import content_key
from tatami.runtime.building.temporary import build_folder
from tatami.search.cut import Place, cut, places, port_bytes
from tatami.search.guarded import behind_sizes
from tatami.search.measuring.measurer import WORKER, Ended, Limits, Measurer, Outcome, memory_limit
from tatami.search.measuring.messages import OWN, Open
from tatami.search.measuring.noise import GAIN, is_slower, ratios, spread
from tatami.search.proposal import Proposal, merged
from tatami.search.strategy import BUSY, Candidate, Patience, Search, candidate, worth_measuring
from tatami.search.suggesters import suggest
from tatami.stages import UP_TO_REGION
from tatami.storage.dump import write_bytes, write_dump, write_text
from tatami.storage.program_cache import chain_parts

FOR_WHOLE = 0.25
"""Share of the time that is left for the whole program at the end."""
PATIENCE = 0.1
"""Share of the time that may be spent waiting for a busy machine."""
LEAST_SHARE = 0.005
"""Share of the program's time below which a Region is not tuned."""
PROFILE_TURNS = 7
"""Number of turns with clocks around kernels."""
WHOLE_TURNS = 24
"""Number of turns of the whole program with winners and without."""
TUNED = "tuned"
"""The worker's name of the program with the winners."""


@dataclass(frozen=True)
class Options:
    """The options of a search. `budget`: seconds; `sizes`: values of size symbols, others have the usual ones; `faults`: folder
    for documents of wrong candidates; `command`, `limits`: of the workers."""

    budget: float
    sizes: Mapping[str, int]
    threads: int
    faults: Path
    seed: int = 0
    command: Sequence[str] = WORKER
    limits: Limits = field(default_factory=Limits)


class Change(msgspec.Struct, frozen=True):
    """One Region whose plan changed. Seconds of all its kernels in the program, before and after."""

    kernels: tuple[str, ...]
    key: str
    before: float
    after: float
    old: str
    new: str


class Whole(msgspec.Struct, frozen=True):
    """The whole program: medians of seconds per call, and the median of the turns' ratios."""

    before: float
    after: float
    ratio: float
    turns: int


class Fault(msgspec.Struct, frozen=True):
    """A candidate that was wrong, hung or crashed. `folder`: its documents."""

    line: str
    verdict: str
    why: str
    folder: str


class Tuned(msgspec.Struct, frozen=True):
    """The result of a search. `measured`: number of candidates that were compiled and compared; `left`: Regions whose search has
    not ended; `dropped`: winners that did not show in the whole program."""

    decisions: Decisions
    changes: tuple[Change, ...]
    whole: Whole | None
    measured: int
    regions: int
    left: int
    dropped: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    waited: float = 0.0
    is_interrupted: bool = False


class Kept(msgspec.Struct, frozen=True):
    """The end of a search in the ledger. `winners`: candidate key of each winner that the whole program was compared with."""

    winners: tuple[str, ...]
    changes: tuple[Change, ...]
    whole: Whole | None
    keys: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """The state of a search. `share`: of the time or of the Regions, the larger; `gain`: the seconds of the program that the
    winners so far save, over its time."""

    what: str
    share: float
    left: float
    gain: float


Tell = Callable[[Progress], None]


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


class Session:
    """The search for one compilation. `records`: the open ledger."""

    def __init__(self, compilation: Compilation, options: Options, records: Records, tell: Tell) -> None:
        if compilation.first not in UP_TO_REGION or compilation.target.kind != "cpu":
            why = f"the plans of a {compilation.target.name} program made from the stage {compilation.first} are not measured"
            raise fail("InvalidAttribute", "tune", why, "tune a model, or a document up to region, for this CPU")
        self.compilation = compilation
        self.options = options
        self.records = records
        self._tell = tell
        self.began = time.monotonic()
        self.patience = Patience(PATIENCE * options.budget)
        self.sizes = self._all_sizes()
        self.faults: list[Fault] = []
        self.measured = 0
        self.gain = 0.0
        self.done = 0.0
        self.hash = target_hash(compilation.target)
        self.revision = revision()
        self.subject = self._subject(f"program:{content_key(chain_parts(compilation))[:32]}", self.sizes, "warm")

    # -- what is there ---------------------------------------------------------------------------

    def _all_sizes(self) -> dict[str, int]:
        """A value for each size symbol of `main`."""
        signature = self.compilation.stages["region"].main.signature
        usual = {**estimate_sizes(self.compilation), **signature.defaults, **self.compilation.hints, **self.options.sizes}
        return {n: usual.get(n, UNBOUND_SIZE) for n in symbols(signature)}

    def _subject(self, region: str, sizes: Mapping[str, int], caches: str) -> Subject:
        return Subject(region, self.hash, sizes_text(sizes), self.options.threads, caches, self.revision)

    def _say(self, what: str) -> None:
        left = self.options.budget - (time.monotonic() - self.began)
        passed = 1 - left / self.options.budget
        self._tell(Progress(what, min(1.0, max(self.done, passed)), max(0.0, left), self.gain))

    def jobs(self, times: Mapping[str, float]) -> list[Job]:
        """The different Regions that are worth tuning, the largest share first. `times`: seconds of each kernel."""
        total = sum(times.values()) or 1.0
        by_subject: dict[str, list[Proposal]] = {}
        decided = self.compilation.decisions.plans
        for p in suggest(self.compilation, self.sizes):
            if p.decision.plans.keys() == {p.subject} and p.subject not in decided:
                by_subject.setdefault(p.subject, []).append(p)
        found: dict[object, Job] = {}
        data = sum(sum(port_bytes(p)) for p in {p.form: p for p in self._places()}.values())
        for place in self._places():
            proposals = by_subject.get(place.key)
            if not proposals:
                continue
            name = f"{place.program}/{place.region.name}"
            if place.form in found:
                job = found[place.form]
                job.names.append(name)
                job.share += times.get(name, 0.0) / total
                continue
            own = Decisions(plans={place.key: place.decision()})
            caches = "cold" if _is_met_cold(place, data, self.compilation.target.l3_bytes) else "warm"
            subject = self._subject(place.key, place.sizes, caches)
            usable = [p for p in worth_measuring(proposals) if behind_sizes(place, p.decision) is not None]
            candidates = [candidate(p, p.decision, own) for p in usable]
            found[place.form] = Job(place, [name], times.get(name, 0.0) / total, candidates, own, subject)
        wanted = [j for j in found.values() if j.share >= LEAST_SHARE and j.candidates]
        return sorted(wanted, key=lambda j: -j.share)

    def _places(self) -> list[Place]:
        return list(places(self.compilation, self.sizes))

    # -- the search ------------------------------------------------------------------------------

    def run(self) -> Tuned:
        """Search until all Regions are done or the time is over."""
        with build_folder() as folder, contextlib.ExitStack() as open_:
            opened = self._whole_program(folder / "whole")
            whole = open_.enter_context(Measurer(opened, self.options.limits, self.options.command))
            alone = open_.enter_context(Measurer(opened, self.options.limits, self.options.command))
            times = self._profile(whole)
            jobs = self.jobs(times)
            wins: list[Win] = []
            left = len(jobs)
            is_interrupted = False
            try:
                for number, job in enumerate(jobs):
                    until = self._deadline(jobs[number:])
                    win, is_complete = self._search(job, alone, Path(folder) / f"region{number}", until)
                    left -= is_complete
                    self.done += job.share / max(sum(j.share for j in jobs), 1e-9)
                    if win is not None:
                        wins.append(win)
                        self.gain += job.share * (1 - win.ratio)
            except KeyboardInterrupt:
                is_interrupted = True  # the winners so far are compared in the whole program, unless that is interrupted too
            alone.close()
            found = self._ended(whole, wins, len(jobs), left)
            return msgspec.structs.replace(found, is_interrupted=is_interrupted)

    def _deadline(self, ahead: Sequence[Job]) -> float:
        """The time (monotonic) at which the first of the jobs ahead has to end: its share of what is left."""
        now = time.monotonic()
        left = self.began + self.options.budget * (1 - FOR_WHOLE) - now
        return now + left * ahead[0].share / max(sum(j.share for j in ahead), 1e-9)

    def _whole_program(self, folder: Path) -> Open:
        """The whole program as workers open it."""
        given = self.compilation.stages.given
        first = self.compilation.first
        write_dump(folder, {first: given[first]}, [first], self.compilation.target)
        return self._opened(folder, {**self.compilation.hints, **self.sizes}, 0)

    def _opened(self, folder: Path, hints: Mapping[str, int], flush: int) -> Open:
        target = to_builtins(self.compilation.target)
        return Open(str(folder), target, dict(hints), self.options.threads, flush, memory_limit())

    def _profile(self, whole: Measurer) -> dict[str, float]:
        """Kernel -> median seconds in the program; from the ledger if it was measured before. Raises TatamiError if the
        compiler's own program cannot be measured."""
        known = self.records.program(self.subject, "times", dict[str, float])
        if known is not None:
            return dict(known)
        self._say("profile")
        found = self._clocked(whole, [OWN], PROFILE_TURNS)[OWN]
        times = {k: median(v) for k, v in found.items()}
        self.records.keep_program(self.subject, "times", times)
        return times

    def _has_own(self, whole: Measurer) -> None:
        if OWN in whole.live:
            return
        outcome = whole.add(OWN, self.compilation.decisions)
        if outcome.verdict == "wrong":
            self._report(None, "the program", outcome, Path(whole.opened.folder), self.compilation.decisions)
        elif outcome.verdict != "right":
            raise _unmeasurable(outcome)

    def _clocked(self, whole: Measurer, names: Sequence[str], turns: int) -> dict[str, dict[str, list[float]]]:
        self._has_own(whole)
        try:
            return whole.clocks(names, turns)
        except Ended as ended:
            raise _unmeasurable(ended.outcome) from None

    def _search(self, job: Job, measurer: Measurer, folder: Path, until: float) -> tuple[Win | None, bool]:
        """(the winner of one Region, True if the search came to its end)."""
        known = self.records.winner(job.subject, job.proposals)
        if known is not None:
            return self._win(job, known[0], known[1]), True
        name = job.names[0].removeprefix("main/")
        self._say(name)
        write_dump(folder, {"region": cut(self.compilation, job.place)}, ["region"], self.compilation.target)
        flush = 2 * self.compilation.target.l3_bytes if job.subject.caches == "cold" else 0
        measurer.reopen(self._opened(folder, job.place.sizes, flush))
        search = Search(
            job.subject,
            job.own,
            measurer,
            self.records,
            until,
            self.patience,
            lambda text: self._say(f"{name}: {text}"),
            self.options.seed,
        )
        found = search.run(job.candidates)
        self.measured += found.measured
        for c, outcome in found.faults:
            self._report(c, name, outcome, folder, c.decision if c is not None else job.own)
        if found.is_complete:
            winner = found.winner.key if found.winner is not None else ""
            self.records.finish(job.subject, job.proposals, winner, found.ratio)
        return self._win(job, found.winner.key if found.winner else "", found.ratio), found.is_complete

    def _win(self, job: Job, winner: str, ratio: float | None) -> Win | None:
        c = next((c for c in job.candidates if c.key == winner), None)
        decision = behind_sizes(job.place, c.decision) if c is not None else None
        if c is None or decision is None or ratio is None:
            return None
        return Win(job, c, ratio, decision)

    def _report(self, c: Candidate | None, name: str, outcome: Outcome, folder: Path, decisions: Decisions) -> None:
        """Keep the documents of a fault of Tatami, and note it."""
        line = c.proposal.line if c is not None else "the compiler's own decision"
        kept = self.options.faults / f"{content_key([line, name, decision_text(decisions)])[:16]}"
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                write_bytes(kept / file.relative_to(folder), file.read_bytes())
        write_text(kept / "decisions.json", decisions_text(decisions))
        write_text(kept / "fault.txt", f"{name}: {line}\n{outcome.verdict}: {outcome.why}\n")
        self.faults.append(Fault(f"{name}: {line}", outcome.verdict, outcome.why, str(kept)))

    # -- the whole program -----------------------------------------------------------------------

    def _ended(self, whole: Measurer, wins: list[Win], regions: int, left: int) -> Tuned:
        """The result: from the ledger if the same winners were compared before."""
        keys = tuple(sorted(w.candidate.key for w in wins))
        kept = self.records.program(self.subject, "tuned", Kept)
        if kept is None or kept.winners != keys:
            kept = self._compared(whole, wins, keys) if wins else Kept(keys, (), None, (), ())
            self.records.keep_program(self.subject, "tuned", kept)
        chosen = [w.decision for w in wins if w.candidate.key in kept.keys]
        decisions = merged([self.compilation.decisions, *_joined(chosen)])
        waited = self.patience.waited
        faults = tuple(self.faults)
        return Tuned(decisions, kept.changes, kept.whole, self.measured, regions, left, kept.dropped, faults, waited)

    def _compared(self, whole: Measurer, wins: Sequence[Win], keys: tuple[str, ...]) -> Kept:
        """Compare the program with the winners with the one without; drop those that do not show."""
        left = list(wins)
        dropped: list[str] = []
        while left:
            self._say("whole program")
            decisions = merged([self.compilation.decisions, *_joined([w.decision for w in left])])
            self._has_own(whole)
            outcome = whole.add(TUNED, decisions)
            if outcome.verdict != "right":
                self._report(None, "the tuned program", outcome, Path(whole.opened.folder), decisions)
                return Kept(keys, (), None, (), tuple(w.candidate.proposal.line for w in wins))
            try:
                clocked = whole.clocks([OWN, TUNED], PROFILE_TURNS)
                shown = [w for w in left if _shows(w, clocked)]
                times = whole.turns([OWN, TUNED], WHOLE_TURNS, self.options.seed)
                while len(shown) == len(left) and spread(times[OWN]) > BUSY and self.patience.wait():
                    more = whole.turns([OWN, TUNED], WHOLE_TURNS, self.options.seed + len(times[OWN]))
                    times = {n: [*t, *more[n]] for n, t in times.items()}
            except Ended as ended:
                self._report(None, "the tuned program", ended.outcome, Path(whole.opened.folder), decisions)
                return Kept(keys, (), None, (), tuple(w.candidate.proposal.line for w in wins))
            found = ratios(times[OWN], times[TUNED])
            if len(shown) == len(left) and (is_slower(found) or median(found) > 1 + GAIN):
                shown = sorted(left, key=lambda w: w.job.share * (1 - w.ratio))[(len(left) + 1) // 2 :]
            if len(shown) == len(left):
                result = Whole(median(times[OWN]), median(times[TUNED]), median(found), len(found))
                changes = tuple(_change(w, clocked) for w in left)
                return Kept(keys, changes, result, tuple(w.candidate.key for w in left), tuple(dropped))
            dropped += [w.candidate.proposal.line for w in left if w not in shown]
            left = shown
        return Kept(keys, (), None, (), tuple(dropped))


def fault_folder(ledger: Path) -> Path:
    """The folder next to a ledger for documents of candidates that were wrong."""
    return ledger.parent / "faults"


def _is_met_cold(place: Place, data: int, cache: int) -> bool:
    """True if the program uses more data than the last cache holds between two runs of the kernel, and a good part of what the
    kernel reads are constants, which nothing has read since."""
    constant, other = port_bytes(place)
    return cache > 0 and data > cache and 4 * constant >= constant + other


def _joined(decisions: Sequence[Decisions]) -> Iterator[Decisions]:
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


def _times_of(win: Win, clocked: Mapping[str, Sequence[float]], turns: int) -> list[float]:
    """Seconds of the Region's kernels in each turn; parts that a plan adds have its name as a beginning."""
    out = [0.0] * turns
    for kernel, taken in clocked.items():
        if any(kernel == n or kernel.startswith(f"{n}_") for n in win.job.names):
            out = [a + b for a, b in zip(out, taken, strict=True)]
    return out


def _shows(win: Win, clocked: Mapping[str, Mapping[str, Sequence[float]]]) -> bool:
    """True if the Region's kernels are faster in the program too, by the median of the turns."""
    before, after = (_times_of(win, clocked[n], PROFILE_TURNS) for n in (OWN, TUNED))
    return min(before) > 0 and median(ratios(before, after)) < 1


def _change(win: Win, clocked: Mapping[str, Mapping[str, Sequence[float]]]) -> Change:
    before, after = (median(_times_of(win, clocked[n], PROFILE_TURNS)) for n in (OWN, TUNED))
    names = tuple(n.removeprefix("main/") for n in win.job.names)
    return Change(names, win.job.place.key, before, after, plan_words(win.job.place), win.candidate.proposal.line)


def plan_words(place: Place) -> str:
    """The kind of the plan that a Region has now, with its fields that are numbers or words."""
    plan = place.choices[-1].plan
    value = to_builtins(plan)
    kept = {k: v for k, v in value.items() if k != "kind" and isinstance(v, int | str | bool) and v not in ("", 0, False)}
    return " ".join([str(value.get("kind", type(plan).__name__)), *(f"{k}={v}" for k, v in kept.items())])[:120]


def _unmeasurable(outcome: Outcome) -> Exception:
    why = f"the program cannot be measured: it {outcome.verdict} ({outcome.why})"
    return fail("InternalError", "tune", why, "run the model with --check first")
