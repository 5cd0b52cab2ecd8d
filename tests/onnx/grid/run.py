"""Cases through Tatami, many to a program, and the verdict on each."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tatami.backends.onnx_api import OnnxBackend
from tatami.core.diagnostic import TatamiError
from tests.onnx.grid.cases import Case, model
from tests.onnx.grid.known import DISAGREEMENTS, known_of
from tests.onnx.grid.oracles import Answer, difference, onnxruntime, reference

BATCH = 24
"""Cases of one program: the compiler's fixed cost is shared, and a fault is found in few halvings."""
OUTCOMES = ("right", "wrong", "refused", "fault", "undecided", "not told")
"""right: as the oracle that is followed, or refused where no oracle has an answer. wrong, refused, fault (an exception
that is not a diagnostic): by Tatami, where an oracle has an answer. undecided: the oracles differ and nothing says which one
is followed. not told: no oracle has an answer, and Tatami has one."""


@dataclass(frozen=True)
class Verdict:
    case: Case
    outcome: str
    why: str = ""
    oracle: str = ""
    """The oracle that was met."""


def verdicts(cases: Sequence[Case]) -> Iterator[Verdict]:
    """The verdict on each case, batch by batch."""
    by_version: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        by_version[case.version].append(case)
    for version in sorted(by_version):
        group = by_version[version]
        for i in range(0, len(group), BATCH):
            batch = [(c, {"onnxruntime": onnxruntime(c), "reference": reference(c)}) for c in group[i : i + BATCH]]
            for (case, oracles), answer in zip(batch, answers(batch), strict=True):
                yield verdict(case, oracles, answer)


Asked: TypeAlias = tuple[Case, Mapping[str, Answer]]
"""A case and what each oracle says."""


def answers(batch: Sequence[Asked]) -> list[Answer]:
    """Tatami's results for each case; a batch that fails is halved until the case that fails is alone."""
    told = [next((a.values for a in oracles.values() if a.values is not None), None) for _, oracles in batch]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made, feeds, names = model([c for c, _ in batch], told)
            given = iter(OnnxBackend.prepare(made, threads=1).run(feeds))
            return [Answer(tuple(next(given) for _ in group)) for group in names]
    except Exception as error:
        if len(batch) > 1:
            half = len(batch) // 2
            return [*answers(batch[:half]), *answers(batch[half:])]
        if isinstance(error, TatamiError):
            return [Answer(None, f"refused: {error.diagnostics[0].why.splitlines()[0][:200]}")]
        return [Answer(None, f"fault: {type(error).__name__}: {str(error)[:200]}")]


def verdict(case: Case, found: Mapping[str, Answer], answer: Answer) -> Verdict:
    told = {name: a.values for name, a in found.items() if a.values is not None}
    if answer.values is None and answer.why.startswith("fault"):
        return Verdict(case, "fault", answer.why)
    floor = case.way != "all"
    values = tuple(told.values())
    agree = len(values) == 2 and not difference(values[0], values[1], case.random, floor)
    known = known_of(case, DISAGREEMENTS)
    if known is not None and (not agree or known.against_both):
        told = {name: v for name, v in told.items() if name == known.follows}
        if not told and answer.values is not None:
            return Verdict(case, "not told", known.why)
    if not told:
        if answer.values is None:
            return Verdict(case, "right", answer.why)
        return Verdict(case, "not told", "; ".join(f"{name}: {a.why}" for name, a in found.items()))
    if answer.values is None:
        return Verdict(case, "refused", answer.why, ", ".join(told))
    differences = {name: difference(answer.values, v, case.random, floor) for name, v in told.items()}
    met = [name for name, d in differences.items() if not d]
    if len(told) == 2 and not agree:
        between = difference(values[0], values[1], case.random, floor)
        return Verdict(case, "undecided", f"as {met[0] if met else 'neither'}; onnxruntime and reference: {between}", *met[:1])
    if not met:
        return Verdict(case, "wrong", "; ".join(f"{name}: {d}" for name, d in differences.items()), ", ".join(told))
    return Verdict(case, "right", "", met[0])
