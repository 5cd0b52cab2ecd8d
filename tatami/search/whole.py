"""The whole program in a worker: its kernels clocked, and other decisions compared with its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType

import msgspec

from tatami.core.diagnostic import fail
from tatami.decisions import Decisions
from tatami.ledger.records import decision_text
from tatami.runtime.building.cache import content_key
from tatami.search.context import Context
from tatami.search.journal import Whole
from tatami.search.measuring.crew import Crew
from tatami.search.measuring.measurer import Ended, Outcome
from tatami.search.measuring.messages import OWN
from tatami.search.measuring.noise import GAIN, is_faster, is_slower, ratios, spread
from tatami.search.strategy import BUSY
from tatami.storage.dump import write_dump

PROFILE_TURNS = 7
"""Number of turns with clocks around kernels."""
WHOLE_TURNS = 24
"""Number of turns of the whole program with winners and without."""
Times = Mapping[str, float]
"""Kernel (`main/r3`) -> median seconds in the program."""


class Comparison(msgspec.Struct, frozen=True):
    """A comparison in the ledger. `against_base`: median ratio to the decisions that were adopted before; `times`: of kernels."""

    is_better: bool
    against_base: float | None
    whole: Whole | None
    times: dict[str, float]


class WholeProgram:
    """The program of a search, and other decisions for it. A context manager."""

    def __init__(self, context: Context, crew: Crew, folder: Path) -> None:
        self.context = context
        compilation = context.compilation
        first = compilation.first
        write_dump(folder, {first: compilation.stages.given[first]}, [first], compilation.target)
        opened = context.opened(folder, {**compilation.hints, **context.sizes})
        self.opened = opened
        self.subject = context.subject
        self.measurer = crew.measurer(opened, is_alone=False)
        self.own = compilation.decisions
        self.base = OWN
        """Name of the program with the decisions that are adopted."""
        self.decided: dict[str, Decisions] = {OWN: self.own}

    def __enter__(self) -> WholeProgram:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.measurer.close()

    # -- what the ledger has ---------------------------------------------------------------------

    def profile(self) -> Times:
        """The times of the kernels of the program as it is; from the ledger if they were measured before. Raises TatamiError if
        the program cannot be measured."""
        records = self.context.records
        known = records.program(self.subject, "times", dict[str, float])
        if known is None:
            self.context.say("profile")
            known = self._medians(OWN)
            records.keep_program(self.subject, "times", known)
        return known

    def step(self, decisions: Decisions, what: str) -> Comparison:
        """Compare decisions with those that are adopted, and with the program's own; from the ledger if they were compared before.
        If they are better they are the new base. `what`: for the progress and for reports of faults."""
        name = f"step{content_key([decision_text(decisions)])[:16]}"
        base = decision_text(self.decided[self.base])
        note = f"step:{content_key([base, decision_text(decisions)])[:32]}"
        found = self.context.records.program(self.subject, note, Comparison)
        if found is None:
            self.context.say(what)
            found = self._step(name, decisions, what)
            self.context.records.keep_program(self.subject, note, found)
        if found.is_better:
            self.decided[name] = decisions
            self.base = name
        return found

    # -- measuring -------------------------------------------------------------------------------

    def _step(self, name: str, decisions: Decisions, what: str) -> Comparison:
        failed = Comparison(is_better=False, against_base=None, whole=None, times={})
        if not self.add(name, decisions, what):
            return failed
        try:
            times = self.turns([OWN, self.base, name])
        except Ended as ended:
            self.report(what, ended, decisions)
            return failed
        found = ratios(times[self.base], times[name])
        if not is_faster(found):
            return msgspec.structs.replace(failed, against_base=median(found))
        return Comparison(True, median(found), whole_of(times, name), self._medians(name))

    def add(self, name: str, decisions: Decisions, what: str) -> bool:
        """Compile the program with other decisions. The result is False if its results are wrong, it does not run, or the compiler
        refuses it; all but a refusal are reported as faults."""
        self._has(OWN)
        self._has(self.base)
        outcome = self.measurer.add(name, decisions)
        self.context.measured += 1
        if outcome.verdict not in ("right", "refused"):
            self._report(what, outcome, decisions)
        return outcome.verdict == "right"

    def turns(self, names: Sequence[str]) -> dict[str, list[float]]:
        """Seconds per call of each program, in turns; more of them while the machine is busy. Raises Ended."""
        each = list(dict.fromkeys(names))
        seed = self.context.options.seed
        times = self.measurer.turns(each, WHOLE_TURNS, seed)
        while spread(times[OWN]) > BUSY and self.context.patience.wait():
            more = self.measurer.turns(each, WHOLE_TURNS, seed + len(times[OWN]))
            times = {n: [*t, *more[n]] for n, t in times.items()}
        return times

    def clocked(self, names: Sequence[str]) -> dict[str, dict[str, list[float]]]:
        """Program -> kernel -> its times. Raises Ended; TatamiError if the program as it is cannot be measured."""
        for n in names:
            self._has(n)
        return self.measurer.clocks(list(dict.fromkeys(names)), PROFILE_TURNS)

    def _medians(self, name: str) -> dict[str, float]:
        try:
            found = self.clocked([name])[name]
        except Ended as ended:
            raise _unmeasurable(ended.outcome) from None
        return {k: median(v) for k, v in found.items()}

    def report(self, what: str, ended: Ended, decisions: Decisions) -> None:
        """Keep the documents of a program that ended the worker while it was timed: the one with these decisions, or one that
        was adopted."""
        if ended.name in self.decided:
            self._report("the program", ended.outcome, self.decided[ended.name])
        else:
            self._report(what, ended.outcome, decisions)

    def _report(self, what: str, outcome: Outcome, decisions: Decisions) -> None:
        self.context.report(what, "the whole program", outcome, Path(self.opened.folder), decisions)

    def _has(self, name: str) -> None:
        """Make sure that the worker has a program that was adopted."""
        if name in self.measurer.live or name not in self.decided:
            return
        outcome = self.measurer.add(name, self.decided[name])
        if outcome.verdict == "wrong":
            self._report("the program", outcome, self.decided[name])
        elif outcome.verdict != "right":
            raise _unmeasurable(outcome)


def whole_of(times: Mapping[str, Sequence[float]], name: str) -> Whole:
    """The comparison of a program with the one as it is."""
    found = ratios(times[OWN], times[name])
    return Whole(median(times[OWN]), median(times[name]), median(found), len(found))


def is_no_gain(found: Sequence[float]) -> bool:
    """True if ratios say that a program is slower beyond noise, or by more than `GAIN` in the median."""
    return is_slower(found) or median(found) > 1 + GAIN


def _unmeasurable(outcome: Outcome) -> Exception:
    why = f"the program cannot be measured: it {outcome.verdict} ({outcome.why})"
    return fail("InternalError", "tune", why, "run the model with --check first")
