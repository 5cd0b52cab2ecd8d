"""The search over the candidates of one subject: successive halving, then a test against the compiler's own decision.

    round 0       every candidate is compiled and compared with the reference; those that are not right leave
    rounds 1 …    the rest is timed in turns with the own decision: few turns for all, twice as many for the best third, …;
                  the order is that of all turns so far, since a few turns of a busy machine say little
    test          the best one once more, in turns of its own, by the rule of measuring/noise.py; where it does not pass,
                  the next best ones, which a disturbed turn may have put behind it

Measurements of earlier runs stand in the ledger and are not repeated. The order of candidates is that of their estimates, the
order of turns comes from a fixed seed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from statistics import median
from typing import TypeAlias

import msgspec

from tatami.decisions import Decisions
from tatami.ledger.records import Measured, Records, Subject, candidate_key, decision_text
from tatami.search.measuring.measurer import Ended, Measurer, Outcome
from tatami.search.measuring.messages import OWN
from tatami.search.measuring.noise import GAIN, is_faster, ratios, spread
from tatami.search.proposal import Proposal

FIRST_TURNS = 4
"""Number of turns in the first round of halving; each later one has twice as many."""
KEPT = 3
"""Ratio of the candidates before a round to those kept after it."""
MOST_AT_ONCE = 8
"""Maximum number of candidates timed in the same turns, so that the own decision is never far away in time."""
TEST_TURNS = (24, 24, 48)
"""Number of turns of the test, and of those added while the machine is too noisy to tell."""
TEST = 99
"""The round of the test in the ledger, after all others."""
FINALISTS = 3
"""Maximum number of candidates that are tested, one after another, until one passes."""
BEHIND = 1.5
"""Minimum ratio to the own decision for a candidate to leave after any round."""
Correct: TypeAlias = Callable[[Proposal], float]
"""Seconds of a proposal that has an estimate, by a correction that was learned (learned.py)."""
MOST_CANDIDATES = 32
"""Maximum number of candidates of one subject, the best by estimate."""
ESTIMATED_BEHIND = 8.0
"""Maximum ratio to the best estimate for a candidate to be measured: the cost model is off by less."""
FOR_COMPILING = 0.5
"""Maximum share of the time in which candidates are compiled and compared, so that those that were can be timed."""
BUSY = 0.25
"""Minimum spread of the own decision's times for the machine to count as busy."""


@dataclass
class Patience:
    """Waiting for a busy machine: pauses of growing length until `seconds` in all are used. `waited`: seconds so far."""

    seconds: float
    pause: float = 0.5
    waited: float = 0.0
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> bool:
        """Wait for the next pause; the result is False if the patience is used up."""
        if self.waited + self.pause > self.seconds:
            return False
        self.sleep(self.pause)
        self.waited += self.pause
        self.pause = min(2 * self.pause, 8.0)
        return True


@dataclass(frozen=True)
class Candidate:
    """A proposal with the decision that is measured, and the key by which the ledger knows it. `folder`: the program that is
    measured; "": the one that the search is about, with the decision."""

    proposal: Proposal
    decision: Decisions
    key: str
    folder: str = ""


def candidate(proposal: Proposal, decision: Decisions, own: Decisions) -> Candidate:
    """The candidate of a proposal. `decision`: what is measured, which may add to the proposal's; `own`: the decision that it is
    compared with."""
    return Candidate(proposal, decision, candidate_key(decision, own))


@dataclass(frozen=True)
class Result:
    """The end of a search. `winner`: None for the own decision; `ratio`: its time over the own one's; `measured`: number of
    candidates measured in this run; `is_complete`: False if time ran out before the end."""

    winner: Candidate | None
    ratio: float | None
    measured: int
    is_complete: bool
    faults: tuple[tuple[Candidate | None, Outcome], ...] = ()
    """Candidates that were wrong, hung or crashed; None stands for the own decision."""


@dataclass
class Search:
    """One subject. `until`: the time (monotonic) at which it has to end; `tell` is called after each step with what happened."""

    subject: Subject
    own: Decisions
    measurer: Measurer
    records: Records
    until: float
    patience: Patience
    tell: Callable[[str], None] = lambda text: None
    seed: int = 0
    measured: int = 0
    faults: list[tuple[Candidate | None, Outcome]] = field(default_factory=list)
    _known: dict[tuple[str, int], Measured] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)
    _fault: Outcome | None = None

    def run(self, candidates: Sequence[Candidate]) -> Result:
        """Search. Everything measured is in the ledger when this returns or raises."""
        self._known = self.records.rounds(self.subject)
        now = time.monotonic()
        left, all_compared = self._right(candidates, now + FOR_COMPILING * (self.until - now))
        round_, turns = 1, FIRST_TURNS
        behind: list[Candidate] = []
        while len(left) > 1 and self._fault is None:
            timed = self._timed(left, round_, turns)
            if self._is_over() and len(timed) < len(left):
                return self._result(None, None, is_complete=False)
            ranked = sorted((self._ratio(c), k) for k, c in enumerate(left) if c.key in timed)
            ahead = [left[k] for _, k in ranked if timed[left[k].key] < BEHIND]
            kept = max(1, -(-len(ahead) // KEPT))
            left, behind = ahead[:kept], [*ahead[kept:], *behind]
            for c in candidates:
                if c.key in self._ready and c not in left:
                    self._forget(c)
            round_, turns = round_ + 1, 2 * turns
        gaining = sorted((r, k) for k, c in enumerate(behind) if (r := self._ratio(c)) <= 1 - GAIN)
        finalists = [*left, *(behind[k] for _, k in gaining)][:FINALISTS]
        found = self._result(None, None, is_complete=all_compared or self._fault is not None)
        for c in finalists:
            if found.winner is not None or self._fault is not None:
                break
            if c not in left and (c.key, TEST) not in self._known and self._is_over():
                return replace(found, is_complete=False)
            tested = self._tested(c)
            found = replace(tested, is_complete=tested.is_complete and found.is_complete)
        return found

    def _ratio(self, c: Candidate) -> float:
        """The time of a candidate over the own one's, of all turns before the test: the geometric mean of the rounds, by turns."""
        rounds = [m for (key, round_), m in self._known.items() if key == c.key and 0 < round_ < TEST and m.ratio is not None]
        turns = sum(m.turns for m in rounds)
        return exp(sum(m.turns * log(m.ratio) for m in rounds if m.ratio) / turns) if turns else inf

    def _result(self, winner: Candidate | None, ratio: float | None, *, is_complete: bool) -> Result:
        return Result(winner, ratio, self.measured, is_complete, tuple(self.faults))

    def _is_over(self) -> bool:
        return time.monotonic() >= self.until

    # -- round 0 ---------------------------------------------------------------------------------

    def _right(self, candidates: Sequence[Candidate], until: float) -> tuple[list[Candidate], bool]:
        """(the candidates that agree with the reference, True if all were compared before `until`). At least one is compiled."""
        out: list[Candidate] = []
        all_compared = True
        for c in candidates:
            known = self._known.get((c.key, 0))
            if (c.key, TEST) in self._known and self._known[c.key, TEST].verdict not in ("faster", "not faster"):
                continue  # it crashed or hung while it was timed
            if known is None and (time.monotonic() < until or not out):
                known = self._compared(c)
            if self._fault is not None:
                break
            all_compared &= known is not None
            if known is not None and known.verdict == "right":
                out.append(c)
        return out, all_compared

    def _compared(self, c: Candidate) -> Measured | None:
        """The verdict on a candidate, which is kept; None if the own decision cannot be measured."""
        if not self._has_own():
            return None
        outcome = self.measurer.add(c.key, c.decision, c.folder)
        self.measured += 1
        if outcome.verdict == "right":
            self._ready.add(c.key)
        return self._keep(c, 0, outcome)

    def _has_own(self) -> bool:
        """True if the worker has the own decision, which is right."""
        if self._fault is not None:
            return False
        if OWN not in self.measurer.live:
            outcome = self.measurer.add(OWN, self.own)
            if outcome.verdict != "right":
                self._fault = outcome
                self.faults.append((None, outcome))
                return False
        return True

    def _is_ready(self, c: Candidate) -> bool:
        """True if the worker has the candidate; one that an earlier run found right is compiled again."""
        if not self._has_own():
            return False
        if c.key not in self.measurer.live:
            outcome = self.measurer.add(c.key, c.decision, c.folder)
            if outcome.verdict != "right":
                self._fault_of(c, outcome)
                return False
            self._ready.add(c.key)
        return True

    def _forget(self, c: Candidate) -> None:
        self._ready.discard(c.key)
        with contextlib.suppress(Ended):
            self.measurer.drop(c.key)

    # -- rounds of halving -----------------------------------------------------------------------

    def _timed(self, candidates: Sequence[Candidate], round_: int, turns: int) -> dict[str, float]:
        """Candidate -> median ratio, for those that could be timed before the time is over."""
        found = {c.key: k.ratio for c in candidates if (k := self._known.get((c.key, round_))) and k.ratio is not None}
        gone = {c.key for c in candidates if (k := self._known.get((c.key, round_))) and k.ratio is None}
        open_ = [c for c in candidates if c.key not in found and c.key not in gone]
        for first in range(0, len(open_), MOST_AT_ONCE):
            if self._is_over():
                break
            group = open_[first : first + MOST_AT_ONCE]
            while group := [c for c in group if self._is_ready(c)]:
                try:
                    times = self.measurer.turns([OWN, *(c.key for c in group)], turns, self.seed + round_)
                except Ended as ended:
                    self._blame(ended, group)
                    group = [c for c in group if c.key != ended.name]
                    continue
                for c in group:
                    kept = self._keep_times(c, round_, times[OWN], times[c.key])
                    if kept.ratio is not None:
                        found[c.key] = kept.ratio
                break
        return found

    def _blame(self, ended: Ended, group: Sequence[Candidate]) -> None:
        c = next((c for c in group if c.key == ended.name), None)
        if c is None:
            self._fault = ended.outcome
            self.faults.append((None, ended.outcome))
        else:
            self._fault_of(c, ended.outcome)

    def _fault_of(self, c: Candidate, outcome: Outcome) -> None:
        """Keep the fault of a candidate that agreed with the reference and then crashed or hung while it was timed."""
        self._ready.discard(c.key)
        self._keep(c, TEST, outcome)

    # -- the test --------------------------------------------------------------------------------

    def _tested(self, c: Candidate) -> Result:
        """The result if `c` is the best candidate."""
        known = self._known.get((c.key, TEST))
        if known is None:
            known = self._test(c)
        if known is None or known.verdict != "faster":
            return self._result(None, None, is_complete=known is not None or self._fault is not None)
        return self._result(c, known.ratio, is_complete=True)

    def _test(self, c: Candidate) -> Measured | None:
        own: list[float] = []
        other: list[float] = []
        for look, turns in enumerate(TEST_TURNS):
            if not self._is_ready(c):
                return self._known.get((c.key, TEST))
            try:
                times = self.measurer.turns([OWN, c.key], turns, self.seed + TEST + look)
            except Ended as ended:
                self._blame(ended, [c])
                return self._known.get((c.key, TEST))
            own, other = own + times[OWN], other + times[c.key]
            found = ratios(own, other)
            if is_faster(found) or median(found) > 1 - GAIN or spread(own) <= BUSY:
                break
            self.patience.wait()
        return self._keep_times(c, TEST, own, other)

    # -- the ledger ------------------------------------------------------------------------------

    def _keep(self, c: Candidate, round_: int, outcome: Outcome) -> Measured:
        if outcome.verdict in ("wrong", "hung", "crashed"):
            self.faults.append((c, outcome))
        return self._kept(self._row(c, round_, outcome.verdict, outcome.why))

    def _keep_times(self, c: Candidate, round_: int, own: Sequence[float], other: Sequence[float]) -> Measured:
        found = ratios(own, other)
        verdict = "timed" if round_ != TEST else "faster" if is_faster(found) else "not faster"
        m = self._row(c, round_, verdict)
        numbers = {"seconds": median(other), "own_seconds": median(own), "ratio": median(found)}
        counts = {"wins": sum(r < 1 for r in found), "turns": len(found), "spread": spread(own)}
        return self._kept(msgspec.structs.replace(m, **numbers, **counts))

    def _row(self, c: Candidate, round_: int, verdict: str, why: str = "") -> Measured:
        p = c.proposal
        decision = decision_text(p.decision if c.folder else c.decision)
        return Measured(c.key, round_, p.line, decision, verdict, why, p.estimate, msgspec.json.encode(p.terms).decode())

    def _kept(self, m: Measured) -> Measured:
        self.records.keep(self.subject, m)
        self._known[m.candidate, m.round] = m
        ratio = "" if m.ratio is None else f", {m.ratio:.3f} of the own time"
        self.tell(f"{m.line}: {m.verdict}{ratio}")
        return m


def worth_measuring(proposals: Sequence[Proposal], correct: Correct | None = None) -> list[Proposal]:
    """The proposals in the order in which they are measured: by estimate, corrected by `correct`, without those that are far
    behind the best one. A proposal without an estimate comes last."""
    seconds = {id(p): correct(p) if correct is not None else p.estimate for p in proposals if p.estimate is not None}
    known = sorted((p for p in proposals if id(p) in seconds), key=lambda p: (seconds[id(p)], p.line))
    limit = ESTIMATED_BEHIND * seconds[id(known[0])] if known else 0.0
    near = [p for p in known if seconds[id(p)] <= limit]
    return [*near, *(p for p in proposals if p.estimate is None)][:MOST_CANDIDATES]
