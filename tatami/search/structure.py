"""The search for another structure of a program: calls inlined or kept, kernels cut or joined.

    calls     each called graph with the other answer, in the whole program
    fusion    steps between partitions (suggesters/fusion.py). Each is measured alone: the kernels that it replaces against
              those in their place. Those that win are taken together, and adopted if the whole program is faster; else the
              half that saves most is tried, and so on. Then the steps from the new partition, until none wins.

Equal steps of a program, and of other programs, are measured once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tatami.core.codec import to_builtins
from tatami.decisions import Decisions
from tatami.ledger.records import Measured, decision_text
from tatami.ledger.records import Subject as Measurable
from tatami.plan.key import plan_key
from tatami.region.fusion.partition import program_key
from tatami.runtime.building.cache import content_key
from tatami.search.context import Context, seconds_of
from tatami.search.cut_groups import Step, step_of
from tatami.search.journal import Change, Compared, Visit, Whole
from tatami.search.measuring.lanes import Lanes
from tatami.search.measuring.measurer import Measurer
from tatami.search.measuring.noise import GAIN
from tatami.search.proposal import merged
from tatami.search.strategy import TEST, Candidate, Search
from tatami.search.suggesters.calls import calls
from tatami.search.suggesters.fusion import Move, moved, moves
from tatami.search.whole import Comparison, Times, WholeProgram
from tatami.storage.dump import write_dump

MOST_ROUNDS = 4
"""Maximum number of partitions adopted one after another."""
LEAST_SHARE = 0.005
"""Share of the program's time that the replaced kernels of a step have at least."""
OTHER_SIZES = (0.25, 4.0)
"""Ratios to the sizes of the search of those at which a step must not lose either."""


@dataclass
class Subject:
    """Steps that are equal but for names. `seconds`: of all kernels that they replace, in the program."""

    step: Step
    moves: list[Move]
    seconds: float

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels that they replace."""
        return tuple(dict.fromkeys(_name(m, k) for m in self.moves for k in m.replaced))

    @property
    def line(self) -> str:
        """The steps in a few words."""
        first = self.moves[0].proposal.line
        more = len(self.moves) - 1
        return f"{first} and {more} like it" if more else first

    @property
    def old(self) -> str:
        """The kernels that each step replaces, in words."""
        return f"{len(self.step.before)} kernels" if len(self.step.before) > 1 else "1 kernel"


@dataclass(frozen=True)
class Won:
    """Equal steps that are faster alone. `ratio`: of the new kernels' time to that of the old ones."""

    subject: Subject
    ratio: float

    @property
    def saved(self) -> float:
        """Seconds that they save in the program, if they gain there what they gain alone."""
        return self.subject.seconds * (1 - self.ratio)

    def change(self) -> Change:
        """The row of the table at the end."""
        s = self.subject
        names = tuple(n.removeprefix("main/") for n in s.names)
        return Change(names, s.step.key, s.seconds, s.seconds * self.ratio, s.old, s.line)


@dataclass(frozen=True)
class Alone:
    """A step measured in programs of its own. `ratio`: None where it was not timed to the end; `is_complete`: False if time ran
    out; `is_refused`: True if the program does not have such sizes."""

    ratio: float | None = None
    is_faster: bool = False
    is_complete: bool = True
    is_refused: bool = False


class Structure:
    """The search for one program. `changes`, `dropped`, `whole`: for the result."""

    def __init__(self, context: Context, whole: WholeProgram, lanes: Lanes, folder: Path) -> None:
        self.context = context
        self.program = whole
        self.lanes = lanes
        self.folder = folder
        self._folders = 0
        self.changes: list[Change] = []
        self.dropped: list[str] = []
        self.whole: Whole | None = None
        self._calls_left = 0
        self._steps_left = 0

    @property
    def left(self) -> int:
        """Number of calls and steps that were not measured in time."""
        return self._calls_left + self._steps_left

    def run(self, times: Times, until: float) -> Times:
        """Search until no step wins, or `until` (monotonic seconds). The times of the kernels in the program as it is then."""
        times = self._calls(times, until)
        for _ in range(MOST_ROUNDS):
            won = self._measured(times, until)
            adopted = self._adopted(won) if won else None
            if adopted is None:
                break
            times = adopted
        return times

    # -- calls -----------------------------------------------------------------------------------

    def _calls(self, times: Times, until: float) -> Times:
        for p in calls(self.context.compilation, self.context.sizes):
            decisions = merged([self.context.compilation.decisions, p.decision])
            if self.context.is_call_decided(p.subject) or self.context.is_voided(decisions):
                continue
            if time.monotonic() >= until:
                self._calls_left += 1
                continue
            found = self._step(decisions, p.line)
            if found.is_better and found.whole is not None and found.against_base is not None:
                before = sum(times.values())
                change = Change((), p.subject, before, before * found.against_base, "", p.line)
                self._adopt(decisions, [change], found.whole)
                times = found.times
        return times

    def _step(self, decisions: Decisions, line: str) -> Comparison:
        """Compare the whole program with other decisions, and note it in the journal."""
        found = self.program.step(decisions, line)
        gain = 1 - found.whole.ratio if found.is_better and found.whole is not None else self.context.gain
        self.context.diary.step(Compared(line, found.against_base, found.is_better, gain))
        return found

    def _adopt(self, decisions: Decisions, changes: Sequence[Change], whole: Whole) -> None:
        self.context.adopt(decisions)
        self.changes += changes
        self.whole = whole
        self.context.gain = 1 - whole.ratio

    # -- kernels cut and joined ------------------------------------------------------------------

    def _subjects(self, times: Times) -> list[Subject]:
        """The different steps from the partition as it is, those of the most promising estimate first. Decided
        partitions stay, and so do kernels with decided plans."""
        context = self.context
        least = LEAST_SHARE * sum(times.values())
        found: dict[object, Subject] = {}
        decided = context.decided_plans()
        plans = context.compilation.stages["plan"].programs
        kept = {f"{n}/{r.region}" for n, p in plans.items() for r in p.regions if decided.decides(r.key)}
        for m in moves(context.compilation, context.sizes):
            if m.proposal.subject in context.fixed.partitions or any(_name(m, k) in kept for k in m.replaced):
                continue
            seconds = sum(seconds_of(_name(m, k), times) for k in m.replaced)
            step = step_of(context.compilation, m, context.sizes)
            if step is None:
                continue
            subject = found.setdefault((step.key, *sorted(step.sizes.items())), Subject(step, [], 0.0))
            subject.moves.append(m)
            subject.seconds += seconds
        return sorted((s for s in found.values() if s.seconds >= least), key=_promise)

    def _measured(self, times: Times, until: float) -> list[Won]:
        won: list[Won] = []
        self._steps_left = 0
        total = max(sum(times.values()), 1e-12)

        def work(subject: Subject, measurer: Measurer) -> tuple[float | None, bool]:
            return self._ratio(subject, measurer, until)

        def tell(subject: Subject, found: tuple[float | None, bool]) -> None:
            ratio, is_complete = found
            self._steps_left += not is_complete
            if is_complete:
                self.context.diary.visit(self._visit(subject, subject.seconds / total, ratio))
            if ratio is not None:
                won.append(Won(subject, ratio))
                self.context.say(f"{subject.line}: {ratio:.3f} of the time of the kernels")

        self.lanes.run(self._subjects(times), work, tell)
        return sorted(won, key=lambda w: -w.saved)

    def _ratio(self, subject: Subject, measurer: Measurer, until: float) -> tuple[float | None, bool]:
        """(the ratio of a step that is faster, True if the measurement came to its end). A partition has no guard: where sizes
        are open, it must not lose at smaller and larger ones either."""
        found = self._alone(subject, subject.step, measurer, until)
        if not found.is_faster:
            return None, found.is_complete
        for factor in OTHER_SIZES if subject.step.sizes else ():
            sizes = {n: max(1, round(v * factor)) for n, v in subject.step.sizes.items()}
            other = self._alone(subject, replace(subject.step, sizes=sizes), measurer, until)
            if not other.is_refused and (other.ratio is None or other.ratio > 1 + GAIN):
                return None, other.is_complete
        return found.ratio, True

    def _question(self, step: Step) -> tuple[Measurable, str]:
        """(the subject of a step in the ledger, the key of its candidate)."""
        about = self.context.subject_of(f"fusion:{step.key}", step.sizes, "warm")
        return about, content_key(["candidate", step.key, decision_text(self._plans_of(step))])[:32]

    def _visit(self, subject: Subject, share: float, ratio: float | None) -> Visit:
        """The entry of the journal about equal steps. `ratio`: None if they did not win."""
        about, key = self._question(subject.step)
        first = subject.moves[0].proposal
        known = self.context.records.winner(about, key)
        is_slower_elsewhere = ratio is None and known is not None and known[0]
        note = "no gain at other sizes, for which a partition holds too" if is_slower_elsewhere else ""
        return Visit(
            stage="structure",
            line=subject.line,
            kernels=subject.names,
            key=subject.step.key,
            share=share,
            own=subject.old,
            estimate=first.terms.get("replaced"),
            subject=about,
            winner=key if ratio is not None else "",
            gain=self.context.gain,
            note=note,
        )

    def _alone(self, subject: Subject, step: Step, measurer: Measurer, until: float) -> Alone:
        """Measure a step at its sizes; from the ledger if that was done before. Nothing is measured after `until`."""
        context, first = self.context, subject.moves[0].proposal
        with self.lanes.lock:
            about, key = self._question(step)
            own = self._plans_of(step)
            known = context.records.winner(about, key)
            if known is not None:
                verdict = context.records.rounds(about).get((key, 0))
                return Alone(known[1], bool(known[0]), is_refused=verdict is not None and verdict.verdict == "refused")
            if context.records.merged_winner(about, key) == "":  # the kernels stay as they are, which is right whoever says so
                return Alone()
            if time.monotonic() >= until:
                return Alone(is_complete=False)
            context.say(first.line)
            self._folders += 1  # equal steps at other sizes may be measured at the same time
            folders = [self.folder / f"step{self._folders}" / side for side in ("before", "after")]
            for folder, side in zip(folders, (step.before, step.after), strict=True):
                module = step.module(context.compilation, side)
                write_dump(folder, {"region@explicit": module}, ["region@explicit"], context.compilation.target)
        measurer.reopen(context.opened(folders[0], step.sizes))
        candidate = Candidate(first, own, key, str(folders[1]))
        seed = context.options.seed
        search = Search(about, own, measurer, context.records, until, context.patience, context.say, seed)
        try:
            found = search.run([candidate])
        finally:  # the ledger has the verdicts, so that no later search meets these faults again
            with self.lanes.lock:
                context.measured += search.measured
                for c, outcome in search.faults:
                    if outcome.verdict != "refused":
                        context.report(first.line, "kernels alone", outcome, folders[0 if c is None else 1], own)
                    elif c is None:
                        refused = Measured(key, 0, first.line, decision_text(first.decision), "refused", outcome.why)
                        context.records.keep(about, refused)
        with self.lanes.lock:
            rounds = context.records.rounds(about)
            ratio = rounds[key, TEST].ratio if (key, TEST) in rounds else None
            if found.is_complete:
                context.records.finish(about, key, key if found.winner is not None else "", ratio)
        is_refused = (key, 0) in rounds and rounds[key, 0].verdict == "refused"
        return Alone(ratio, found.winner is not None, found.is_complete, is_refused)

    def _plans_of(self, step: Step) -> Decisions:
        """The plans that are decided for kernels of a step."""
        compilation = self.context.compilation
        keys = {plan_key(r, compilation.target) for r in (*step.before, *step.after)}
        return Decisions(plans={k: p for k, p in compilation.decisions.plans.items() if k in keys})

    def _adopted(self, won: Sequence[Won]) -> Times | None:
        """The times after the steps that show in the whole program; None if none does."""
        left = list(won)
        while left:
            decisions, taken = self._decisions(left)
            found = self._step(decisions, "the whole program with kernels cut or joined")
            if found.is_better and found.whole is not None:
                changes = [w.change() for w in left if any(m in taken for m in w.subject.moves)]
                self.dropped = [line for line in self.dropped if line not in {c.new for c in changes}]
                self._adopt(decisions, changes, found.whole)
                return found.times
            kept = left[: len(left) // 2]
            self.dropped += [w.subject.line for w in left if w not in kept and w.subject.line not in self.dropped]
            left = kept
        return None

    def _decisions(self, won: Sequence[Won]) -> tuple[Decisions, list[Move]]:
        """The decisions with these steps, and the steps that could be taken together."""
        compilation = self.context.compilation
        taken: list[Move] = []
        partitions: dict[str, object] = {}
        wanted = [m for w in won for m in w.subject.moves]
        for program in dict.fromkeys(m.program for m in wanted):
            partition, possible = moved(compilation, program, [m for m in wanted if m.program == program])
            taken += possible
            partitions[program_key(compilation.stages["tiny"].programs[program])] = to_builtins(
                msgspec.structs.replace(partition, verdicts=())
            )
        return merged([compilation.decisions, Decisions(partitions=partitions)]), taken


def _name(move: Move, group: int) -> str:
    """The kernel of a group, as clocks name it."""
    return f"{move.program}/r{group}"


def _promise(s: Subject) -> tuple[float, str]:
    """The order of measuring: by the time that the estimates promise to save, steps without an estimate last."""
    terms = s.moves[0].proposal.terms
    saved = (terms["replaced"] - terms["changed"]) / max(terms["replaced"], 1e-12) if terms else float("-inf")
    return -saved * s.seconds, s.step.key
