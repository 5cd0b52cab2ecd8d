"""The state that the steps of one search share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from tatami.bench.inputs import UNBOUND_SIZE
from tatami.compilation import Compilation, unmet_decisions
from tatami.core.codec import to_builtins
from tatami.core.signature import symbols
from tatami.decisions import Decisions, decisions_text
from tatami.ledger.records import Records, Subject, decision_text, revision, sizes_text, target_hash
from tatami.plan.decide import Decided, apply_decisions
from tatami.report.timings import estimate_sizes
from tatami.runtime.building.cache import content_key
from tatami.search.journal import Diary, Journal
from tatami.search.measuring.measurer import Outcome, memory_limit
from tatami.search.measuring.messages import Open
from tatami.search.proposal import with_decisions
from tatami.search.results import Fault, Options, Progress, Tell
from tatami.search.strategy import Correct, Patience
from tatami.storage.dump import write_bytes, write_text
from tatami.storage.program_cache import chain_parts

PATIENCE = 0.1
"""Share of the time that may be spent waiting for a busy machine."""


class Context:
    """One search. `compilation` has the decisions that are adopted so far; `fixed`: decisions that stay as they are; `records`:
    the open ledger.

    `measured`: number of candidates compiled and compared; `gain`: share of the program's time that is saved; `done`: share of
    the work that is over."""

    def __init__(
        self, compilation: Compilation, options: Options, records: Records, tell: Tell, fixed: Decisions | None = None
    ) -> None:
        self.compilation = compilation
        self.fixed = compilation.decisions if fixed is None else fixed
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
        self.subject = self.program_subject(compilation)
        self.correct = self._correction() if options.learned else None
        self._given = compilation

    @cached_property
    def diary(self) -> Diary:
        """The journal of the search, about the program with the decisions that stay."""
        is_untuned = self._given.decisions == self.fixed
        untuned = self._given if is_untuned else with_decisions(self._given, self.fixed)
        begun = Journal(self.sizes, self.options.threads, time.time(), 0.0)
        return Diary(self.records, self.program_subject(untuned), begun)

    def _correction(self) -> Correct:
        from tatami.search.learned import Learned

        return Learned(self.records, self.hash).correct

    def _all_sizes(self) -> dict[str, int]:
        """A value for each size symbol of `main`."""
        signature = self.compilation.stages["region"].main.signature
        usual = {**estimate_sizes(self.compilation), **signature.defaults, **self.compilation.hints, **self.options.sizes}
        return {n: usual.get(n, UNBOUND_SIZE) for n in symbols(signature)}

    def program_subject(self, compilation: Compilation) -> Subject:
        """The subject of notes about a whole program."""
        return self.subject_of(program_name(compilation), self.sizes, "warm")

    def subject_of(self, region: str, sizes: Mapping[str, int], caches: str) -> Subject:
        """The subject of a measurement of this search, as the ledger keeps it."""
        return Subject(region, self.hash, sizes_text(sizes), self.options.threads, caches, self.revision)

    def decided_plans(self) -> Decided:
        """The plans that stay as they are, with the Regions of the program now."""
        return apply_decisions(self.compilation.stages["region"], self.compilation.target, self.fixed.plans)

    def is_call_decided(self, graph: str) -> bool:
        """True if a decision that stays says what the calls of a graph (its hash) are."""
        return graph in self.fixed.calls or "" in self.fixed.calls

    def is_voided(self, decisions: Decisions) -> bool:
        """True if a decision that stays would be about nothing in the program with these decisions, since other kernels are in
        the place of those that it is about."""
        if not self.fixed.plans and not self.fixed.partitions:
            return False
        now, then = (self._unmet(c) for c in (self.compilation, with_decisions(self.compilation, decisions)))
        return not then <= now

    def _unmet(self, compilation: Compilation) -> set[str]:
        assert compilation.stages["region"]
        return {d.at for d in unmet_decisions(self.fixed, compilation.stages, compilation.target)}

    def adopt(self, decisions: Decisions) -> None:
        """Go on with the compilation that has these decisions."""
        self.compilation = with_decisions(self.compilation, decisions)
        self.subject = self.program_subject(self.compilation)

    def at_share(self, share: float) -> float:
        """The time (monotonic) at which this share of the budget is over."""
        return self.began + share * self.options.budget

    def say(self, what: str) -> None:
        """Tell the state of the search. `what`: what it does now."""
        left = self.at_share(1.0) - time.monotonic()
        passed = 1 - left / self.options.budget
        self._tell(Progress(what, min(1.0, max(self.done, passed)), max(0.0, left), self.gain))

    def opened(self, folder: Path, hints: Mapping[str, int], flush: int = 0) -> Open:
        """The program in a folder, as workers open it."""
        target = to_builtins(self.compilation.target)
        return Open(str(folder), target, dict(hints), self.options.threads, flush, memory_limit())

    def report(self, line: str, name: str, outcome: Outcome, folder: Path, decisions: Decisions) -> None:
        """Keep the documents of a fault of Tatami, and note it. `line`: what was decided; `name`: about which kernels."""
        kept = self.options.faults / f"{content_key([line, name, decision_text(decisions)])[:16]}"
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                write_bytes(kept / file.relative_to(folder), file.read_bytes())
        write_text(kept / "decisions.json", decisions_text(decisions))
        write_text(kept / "fault.txt", f"{name}: {line}\n{outcome.verdict}: {outcome.why}\n")
        self.faults.append(Fault(f"{name}: {line}", outcome.verdict, outcome.why, str(kept)))


def program_name(compilation: Compilation) -> str:
    """The name of a program in the ledger: a hash of the model, its decisions and the compiler."""
    return f"program:{content_key(chain_parts(compilation))[:32]}"


def seconds_of(name: str, times: Mapping[str, float]) -> float:
    """Seconds of a Region in its program: its kernel, and the parts that its plan added, which have its name as a beginning.

    >>> seconds_of("main/r1", {"main/r1": 2.0, "main/r1_sum": 1.0, "main/r10": 5.0})
    3.0
    """
    return sum(seconds for kernel, seconds in times.items() if kernel == name or kernel.startswith(f"{name}_"))
