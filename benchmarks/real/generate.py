"""A decoder with past keys and values, run as a user runs it: a prefill whose past has size 0, then 20 steps of one token."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.real.contestants import Answer, Ours, Programs, Request, load_feeds, moved_sessions, session
from benchmarks.real.errors import distance
from benchmarks.real.record import Size

STEPS = 20
Run = Callable[[Mapping[str, Any]], Sequence[Any]]


class Speaker:
    """One contestant with its own past."""

    def __init__(self, run: Run, first: Mapping[str, Any]) -> None:
        self._run, self._past = run, {n: a for n, a in first.items() if n.startswith("past")}
        self.seconds = 0.0
        self.results: Sequence[Any] = ()

    def step(self, ids: np.ndarray) -> None:
        """The results of these tokens after what came before, and the seconds they took."""
        before = next(iter(self._past.values())).shape[2]
        batch, count = ids.shape
        positions = np.broadcast_to(np.arange(before, before + count), ids.shape)
        mask = np.ones((batch, before + count), np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "position_ids": np.ascontiguousarray(positions), **self._past}
        begun = time.perf_counter()
        self.results = self._run(feed)
        self.seconds = time.perf_counter() - begun
        self._past = dict(zip(self._past, self.results[1:], strict=True))


def decode(request: Request) -> Answer:
    """Sizes of the answer: the prefill, the first step, and the other steps as one (the worst error, the longest first call,
    mean seconds). `compilations` counts programs after the first step."""
    from tatami.core.diagnostic import TatamiError

    answer, programs = Answer(), Programs()
    begun = time.perf_counter()
    first = load_feeds(request.feeds[0])[0]
    try:
        ours = Ours(request.path)
        answer.seconds = time.perf_counter() - begun
        rows = _spoken(request, ours, first, programs, answer)
    except TatamiError as error:
        answer.refused = str(error)
        return answer
    later = rows[2:]
    whole = Size({"steps": len(later)}, max(r.error for r in later), max(r.own for r in later))
    calls, seconds, theirs = ([getattr(r, n) for r in later] for n in ("first_call", "seconds", "theirs"))
    mean = len(later)
    answer.sizes = [*rows[:2], Size(whole.sizes, whole.error, whole.own, max(calls), sum(seconds) / mean, sum(theirs) / mean)]
    return answer


def _spoken(request: Request, ours: Ours, first: Mapping[str, Any], programs: Programs, answer: Answer) -> list[Size]:
    """One Size for each step; seconds are the least of all rounds."""
    plain, optimised = session(request.path, optimised=False), session(request.path)
    moved = moved_sessions(request.path, plain).weights
    rows: list[Size] = []
    for turn in range(request.rounds):
        runs: list[Run] = [ours, *(_runner(s) for s in (optimised, plain, *moved))]
        ours_, best, reference, *others = (Speaker(run, first) for run in runs)
        ids = first["input_ids"]
        for step in range(1 + STEPS):
            for speaker in (ours_, best, reference, *others):
                speaker.step(ids)
            made = programs.count()
            if turn == 0:
                answer.compilations += made if step > 1 else 0
                own = max(distance(other.results, reference.results) for other in (best, *others))
                error = distance(list(ours_.results), reference.results)
                sizes = {"past": 0, "tokens": ids.shape[1]} if step == 0 else {"step": step}
                rows.append(Size(sizes, error, own, ours_.seconds, ours_.seconds, best.seconds))
            else:
                was = rows[step]
                times = min(was.seconds, ours_.seconds), min(was.theirs, best.seconds)
                rows[step] = Size(was.sizes, was.error, was.own, was.first_call, *times)
            logits = np.asarray(reference.results[0])
            ids = np.argmax(logits[:, -1:, :], axis=-1).astype(np.int64)
    return rows


def _runner(made: Any) -> Run:
    return lambda feed: made.run(None, dict(feed))
