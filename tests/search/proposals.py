"""Every proposal of every suggester, compiled and compared with the float64 reference.

    python -m tests.search.proposals [--target cpu:avx2] [CASE …]

A proposal is wrong if the compiler refuses it or warns of it, or if an output differs. The exit status is 1 if one is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.decisions import Decisions
from tatami.report.playback import compare_outputs, least_precise
from tatami.search.proposal import Proposal
from tatami.search.suggesters import suggest
from tests.search.cases import called_twice, model_of, small_cases


def proposals(model: Path, target: str) -> list[Proposal]:
    """All proposals for a model."""
    return suggest(prepare(str(model), target=target), {})


class Checker:
    """One model with its arrays and its reference, which proposals are compared with."""

    def __init__(self, model: Path, arrays: Mapping[str, Any], target: str) -> None:
        self.model, self.arrays, self.target = model, arrays, target
        self.base = prepare(str(self.model), target=target)
        self.expected = self.base.reference_run(self.arrays, {})
        self.through = least_precise(self.base.stages[self.base.first])

    def fault(self, decision: Decisions) -> str:
        """The reason why a decision is wrong, or ""."""
        try:
            f = tt.compile(str(self.model), target=self.target, decisions=decision, threads=2)
            got = f(**self.arrays)
        except TatamiError as error:
            return f"refused: {error.diagnostics[0]}"
        stale = [w for w in f.compilation.warnings if w.code in ("StaleDecision", "UnknownDecision")]
        if stale:
            return f"not taken: {stale[0]}"
        found = compare_outputs(f.signature, got, self.expected, self.through)
        wrong = next((a.difference for a in found if a.difference is not None), None)
        return "" if wrong is None else f"wrong at {wrong.index}: {wrong.value} instead of {wrong.expected} ({wrong.count})"


def faults(model: Path, arrays: Mapping[str, Any], target: str) -> Iterator[tuple[Proposal, str]]:
    """Each proposal for a model, with its fault or ""."""
    checker = Checker(model, arrays, target)
    for p in proposals(model, target):
        yield p, checker.fault(p.decision)


def models(folder: Path) -> Iterator[tuple[str, Path, Mapping[str, Any]]]:
    """The name, file and inputs of every case."""
    for name, case in small_cases().items():
        yield name, model_of(case, folder), case.inputs()
    yield "calls", *called_twice(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("cases", nargs="*")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model, arrays in models(Path(folder)):
            if asked.cases and not any(word in name for word in asked.cases):
                continue
            found = list(faults(model, arrays, asked.target))
            bad = [(p, why) for p, why in found if why]
            wrong += len(bad)
            print(f"{name}: {len(found) - len(bad)} of {len(found)} proposals are right", flush=True)
            for p, why in bad:
                print(f"  {p.suggester} {p.line}\n    {why}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
