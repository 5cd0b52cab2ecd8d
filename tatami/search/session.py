"""The tuning of one model.

    profile     the time of each kernel in the program, with clocks around them
    structure   calls inlined or kept, kernels cut or joined: measured alone, adopted if the whole program is faster (structure.py)
    Regions     the proposals for each different Region, in programs of that Region alone (regions.py, strategy.py)
    whole       the program with all winners against the program without, in turns; a winner that does not show there is dropped

The time of the search is divided among the Regions by their shares of the program's time. Measurements are in the ledger at
once: a search that is interrupted or killed goes on where it was, and equal Regions of other models are not measured again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from tatami.compilation import Compilation
from tatami.core.diagnostic import fail
from tatami.decisions import Decisions
from tatami.ledger.records import Records
from tatami.runtime.building.cache import content_key
from tatami.runtime.building.temporary import build_folder
from tatami.search.context import Context
from tatami.search.journal import Change, End, Whole
from tatami.search.measuring.crew import Crew, LocalCrew
from tatami.search.measuring.lanes import Lanes
from tatami.search.measuring.measurer import Ended, Measurer
from tatami.search.measuring.messages import OWN
from tatami.search.measuring.noise import ratios
from tatami.search.proposal import merged, with_decisions
from tatami.search.regions import Job, Spot, Win, jobs, joined, search_region, visit_of
from tatami.search.results import Options, Tell, Tuned
from tatami.search.structure import Structure
from tatami.search.whole import Times, WholeProgram, is_no_gain, whole_of
from tatami.stages import UP_TO_REGION

FOR_STRUCTURE = 0.3
"""Share of the time in which calls and the cut of the program into kernels are searched."""
FOR_WHOLE = 0.25
"""Share of the time that is left for the whole program at the end."""
TUNED = "tuned"
"""The worker's name of the program with the winners."""


class Kept(msgspec.Struct, frozen=True):
    """The end of a search in the ledger. `keys`: candidate keys of the winners that stay; `whole`: the program with them against
    the one as it was; `dropped`: lines of the winners that do not stay."""

    changes: tuple[Change, ...]
    whole: Whole | None
    keys: tuple[str, ...]
    dropped: tuple[str, ...] = ()


NOTHING = Kept((), None, ())
"""The end of a search without a winner."""


class Session:
    """The search for one compilation. `records`: the open ledger; `fixed`: the decisions that it leaves as they are; None: all
    that the compilation has."""

    def __init__(
        self, compilation: Compilation, options: Options, records: Records, tell: Tell, fixed: Decisions | None = None
    ) -> None:
        if compilation.first not in UP_TO_REGION or compilation.target.kind != "cpu":
            why = f"the plans of a {compilation.target.name} program made from the stage {compilation.first} are not measured"
            raise fail("InvalidAttribute", "tune", why, "tune a model, or a document up to region, for this CPU")
        self.context = Context(compilation, options, records, tell, fixed)
        self.wins: list[Win] = []
        self.regions = 0
        """Number of Regions that are worth tuning."""
        self.left = 0
        """Number of those whose search has not ended."""

    def run(self) -> Tuned:
        """Search until everything is done, the time is over, or Ctrl-C. After Ctrl-C the winners so far are compared in the whole
        program; a second one, or one during that comparison, leaves them to the next search."""
        context = self.context
        kept = NOTHING
        is_interrupted = False
        with (
            closing(self._crew()) as crew,
            build_folder() as folder,
            WholeProgram(context, crew, folder / "whole") as whole,
        ):
            with Lanes(crew, whole.opened) as lanes:
                structure = Structure(context, whole, lanes, folder)
                try:
                    times = whole.profile()
                    context.diary.seconds(sum(times.values()))
                    times = structure.run(times, context.at_share(FOR_STRUCTURE)) if context.options.cuts else times
                    self._search_regions(lanes, times, folder)
                except KeyboardInterrupt:
                    is_interrupted = True
            try:
                kept = self._ended(whole, self.wins) if self.wins else NOTHING
            except KeyboardInterrupt:
                is_interrupted = True
        chosen = [w.decision for w in self.wins if w.candidate.key in kept.keys]
        found = Tuned(
            decisions=merged([context.compilation.decisions, *joined(chosen)]),
            changes=(*structure.changes, *kept.changes),
            whole=kept.whole if chosen else structure.whole,
            measured=context.measured,
            regions=self.regions,
            left=self.left + structure.left,
            dropped=(*structure.dropped, *kept.dropped),
            faults=tuple(context.faults),
            waited=context.patience.waited,
            is_interrupted=is_interrupted,
        )
        end = End(found.changes, found.whole, found.dropped, -1 if is_interrupted else found.left)
        if is_interrupted:  # told in this run's report; the ledger has the end of a search that came to it
            journal = msgspec.structs.replace(context.diary.journal, end=msgspec.structs.replace(end, at=time.time()))
            return msgspec.structs.replace(found, journal=journal)
        tuned = with_decisions(context.compilation, found.decisions)
        context.diary.end(end, context.program_subject(tuned))
        return msgspec.structs.replace(found, journal=context.diary.journal)

    def _crew(self) -> Crew:
        options = self.context.options
        if not options.ray:
            return LocalCrew(options.command, options.limits)
        from tatami.search.measuring.ray_crew import RayCrew

        return RayCrew(options.ray, self.context.hash, options.command, options.limits)

    def _search_regions(self, lanes: Lanes, times: Times, folder: Path) -> None:
        """Search each Region that is worth it. `times`: seconds of the kernels in the program."""
        context = self.context
        wanted = jobs(context, times)
        total = max(sum(j.share for j in wanted), 1e-9)
        self.regions = self.left = len(wanted)

        def work(item: tuple[int, Job], measurer: Measurer) -> tuple[Win | None, bool]:
            number, job = item
            until = self._deadline(wanted[number:], lanes.count)
            return search_region(context, job, Spot(measurer, folder / f"region{number}", lanes.lock), until)

        def tell(item: tuple[int, Job], found: tuple[Win | None, bool]) -> None:
            job, (win, is_complete) = item[1], found
            self.left -= is_complete
            context.done += job.share / total
            if win is not None:
                self.wins.append(win)
                context.gain += win.saved
            if win is not None or is_complete:
                context.diary.visit(visit_of(context, job, win))

        lanes.run([*enumerate(wanted)], work, tell)

    def _deadline(self, ahead: Sequence[Job], lanes: int) -> float:
        """The time (monotonic) at which the first of the jobs ahead has to end: its share of what is left, in all lanes."""
        now = time.monotonic()
        left = self.context.at_share(1 - FOR_WHOLE) - now
        share = ahead[0].share / max(sum(j.share for j in ahead), 1e-9)
        return now + left * min(1.0, lanes * share)

    def _ended(self, whole: WholeProgram, wins: Sequence[Win]) -> Kept:
        """The comparison at the end: from the ledger if the same winners were compared before."""
        keys = sorted(w.candidate.key for w in wins)
        records, subject = self.context.records, self.context.subject
        note = f"tuned:{content_key(keys)[:32]}"
        kept = records.program(subject, note, Kept)
        if kept is None:
            kept = self._compared(whole, wins)
            records.keep_program(subject, note, kept)
        return kept

    def _compared(self, whole: WholeProgram, wins: Sequence[Win]) -> Kept:
        """Compare the program with the winners with the one without; drop those that do not show."""
        left = list(wins)
        dropped: list[str] = []
        while left:
            self.context.say("whole program")
            shown, kept = self._together(whole, left)
            if kept is not None:
                return msgspec.structs.replace(kept, dropped=tuple(dropped))
            dropped += [w.candidate.proposal.line for w in left if w not in shown]
            left = shown
        return msgspec.structs.replace(NOTHING, dropped=tuple(dropped))

    def _together(self, whole: WholeProgram, wins: Sequence[Win]) -> tuple[list[Win], Kept | None]:
        """(the winners to go on with, the end if all of them stay). If a program with all of them is wrong or does not gain, the
        half that saves most is next."""
        half = sorted(wins, key=lambda w: w.saved)[(len(wins) + 1) // 2 :]
        decisions = merged([self.context.compilation.decisions, *joined([w.decision for w in wins])])
        if not whole.add(TUNED, decisions, "the tuned program"):
            return half, None
        try:
            clocked = whole.clocked([whole.base, TUNED])
            times = whole.turns([OWN, whole.base, TUNED])
        except Ended as ended:
            whole.report("the tuned program", ended, decisions)
            return half, None
        before, after = clocked[whole.base], clocked[TUNED]
        shown = [w for w in wins if w.shows(before, after)]
        if len(shown) < len(wins):
            return shown, None
        if is_no_gain(ratios(times[whole.base], times[TUNED])):
            return half, None
        changes = tuple(w.change(before, after) for w in wins)
        return shown, Kept(changes, whole_of(times, TUNED), tuple(w.candidate.key for w in wins))


def fault_folder(ledger: Path) -> Path:
    """The folder next to a ledger for documents of candidates that were wrong."""
    return ledger.parent / "faults"
