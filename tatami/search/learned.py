"""A correction of the cost model, learned from the ledger: gradient-boosted trees (scikit-learn, extra `tune`) over the terms of
an estimate and the fields of the plan. They predict the time over the estimate, as a logarithm.

It orders the candidates of a search before they are measured; nothing else sees it. Its quality is the rank correlation of
predicted and measured times among the candidates of one subject, on Regions that it was not trained with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import msgspec
import numpy as np

from tatami.core.diagnostic import fail
from tatami.decisions import Decisions
from tatami.ledger.records import Records, Timing
from tatami.search.proposal import Proposal
from tatami.search.rank_correlation import rank_correlation

TERMS = ("compute", "packing", "transform", "copies", "weights", "memory", "launch", "again")
"""Terms of estimates that are features: each as its share of the estimate."""
FIELDS = ("mr", "nr", "kc", "mc", "nc", "rows", "columns", "width", "parts", "ahead")
"""Numbers of plans that are features: each as a logarithm."""
FLAGS = ("cpu_contraction", "cpu_rows", "cpu_window", "cpu_winograd", "cpu_planes", "cpu_streaming", "cpu_turn", "cpu_split")
"""Kinds of plans that are features."""
FOLDS = 5
"""Number of parts of which each is predicted from the others, to measure the quality."""
LEAST_TIMINGS = 100
"""Minimum number of timed candidates to learn from."""


@dataclass(frozen=True)
class Quality:
    """The mean rank correlation (Spearman) over the subjects with three candidates or more, of plain and of corrected estimates,
    each predicted by what was learned from other Regions."""

    timings: int
    subjects: int
    plain: float
    corrected: float


def features(estimate: float, terms: Mapping[str, float], decision: Decisions) -> list[float]:
    """The features of one candidate."""
    plan = next((_plan(p) for p in decision.plans.values()), {})
    kind = plan.get("kind")
    numbers = [plan.get(f) for f in FIELDS]
    return [
        math.log(estimate),
        *(terms.get(t, 0.0) / estimate for t in TERMS),
        *(math.log1p(n) if isinstance(n, int) and n >= 0 else -1.0 for n in numbers),
        *(float(kind == f) for f in FLAGS),
        float(bool(plan.get("packed"))),
        float(bool(plan.get("in_place"))),
        float(plan.get("swap") is True),
    ]


def _plan(choices: object) -> Mapping[str, object]:
    """The plan of a decision about one Region: its last choice."""
    last = choices[-1] if isinstance(choices, list | tuple) and choices else choices
    plan = last.get("plan", last) if isinstance(last, Mapping) else {}
    return plan if isinstance(plan, Mapping) else {}


class Model(Protocol):
    """A regressor of scikit-learn."""

    def fit(self, rows: np.ndarray, wanted: np.ndarray, /) -> Model:
        """Train it; the result is the regressor itself."""

    def predict(self, rows: np.ndarray, /) -> np.ndarray:
        """The predicted number of each row, in order."""


class Learned:
    """The correction that the timings of one machine teach. Raises InvalidAttribute for fewer than `LEAST_TIMINGS`,
    MissingPackage without scikit-learn."""

    def __init__(self, records: Records, target: str) -> None:
        self._trees = _trees()
        found = [(t, x) for t in records.timings(target) if (x := _row(t)) is not None]
        if len(found) < LEAST_TIMINGS:
            why = f"the ledger has {len(found)} timed candidates of this machine; {LEAST_TIMINGS} are needed to learn from"
            raise fail("InvalidAttribute", "learned", why, "tune some models without it first")
        self.timings = [t for t, _ in found]
        self.rows = np.array([x for _, x in found])
        self.wanted = np.array([math.log(t.seconds / t.estimate) for t in self.timings])
        self._model = self._fitted(np.ones(len(found), bool))

    def _fitted(self, chosen: np.ndarray) -> Model:
        model: Model = self._trees.HistGradientBoostingRegressor(
            max_iter=200, learning_rate=0.05, min_samples_leaf=8, random_state=0
        )
        with self._one_thread():
            return model.fit(self.rows[chosen], self.wanted[chosen])

    def _one_thread(self) -> AbstractContextManager[object]:
        """A context in which the trees use one thread: a ledger has some hundred rows, fewer than threads are worth; on a busy
        machine they wait for each other (240 rows: 12 processor seconds with two threads, 0.4 with one)."""
        from threadpoolctl import threadpool_limits  # scikit-learn requires it

        return threadpool_limits(1, user_api="openmp")

    def correct(self, proposal: Proposal) -> float:
        """Seconds of a proposal with an estimate, corrected."""
        assert proposal.estimate is not None
        row = np.array([features(proposal.estimate, proposal.terms, proposal.decision)])
        with self._one_thread():
            return proposal.estimate * math.exp(float(self._model.predict(row)[0]))

    def quality(self) -> Quality:
        """The quality on Regions that were left out: each Region belongs to one of `FOLDS` parts."""
        regions = sorted({t.region for t in self.timings})
        part = {r: k % FOLDS for k, r in enumerate(regions)}
        parts = np.array([part[t.region] for t in self.timings])
        said = np.zeros(len(self.timings))
        for k in range(FOLDS):
            inside = parts == k
            if inside.any() and not inside.all():
                model = self._fitted(~inside)
                with self._one_thread():
                    said[inside] = model.predict(self.rows[inside])
        pairs = []
        for group in _subjects(self.timings):
            seconds = [self.timings[k].seconds for k in group]
            estimates = [self.timings[k].estimate for k in group]
            plain = rank_correlation(estimates, seconds)
            corrected = rank_correlation([e * math.exp(said[k]) for k, e in zip(group, estimates)], seconds)
            pairs.append((plain or 0.0, corrected or 0.0))  # equal estimates order nothing
        means = np.mean(pairs or [(0.0, 0.0)], axis=0)
        return Quality(len(self.timings), len(pairs), float(means[0]), float(means[1]))


def _row(t: Timing) -> list[float] | None:
    """The features of a timing; None if its decision or its terms are not what Tatami wrote."""
    try:
        terms = msgspec.json.decode(t.terms, type=dict[str, float])
        decision = msgspec.json.decode(t.decision, type=Decisions)
    except msgspec.MsgspecError:
        return None
    return features(t.estimate, terms, decision) if decision.plans else None


def _subjects(timings: Sequence[Timing]) -> Iterator[list[int]]:
    """Numbers of the timings of each subject that has three or more."""
    found: dict[tuple[str, str], list[int]] = {}
    for k, t in enumerate(timings):
        found.setdefault((t.region, t.sizes), []).append(k)
    yield from (group for group in found.values() if len(group) >= 3)


def _trees() -> ModuleType:
    try:
        from sklearn import ensemble
    except ModuleNotFoundError:
        raise fail("MissingPackage", "scikit-learn", "it is not installed", 'pip install "tatami[tune]"') from None
    return ensemble
