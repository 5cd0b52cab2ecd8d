"""A decision that may be better than the compiler's own."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tatami.compilation import Compilation
from tatami.decisions import Decisions
from tatami.pipeline import compile_stages


class Proposal(msgspec.Struct, frozen=True):
    """One decision that may be better than the compiler's own, as a fragment of a decisions document."""

    suggester: str
    """The name of the function that made it: tiling, fusion, calls."""
    line: str
    """One line that identifies it among the proposals for its subject."""
    subject: str
    """The thing decided: the key of a plan, the hash of a tiny Program, or the hash of a graph."""
    decision: Decisions
    """The fragment that fixes it. Fragments of different subjects can be merged."""
    estimate: float | None
    """Seconds by the cost model at the sizes that were asked for; None: the model has no figure, and `reason` says why."""
    terms: dict[str, float]
    """Terms of the estimate, in seconds."""
    reason: str
    """The difference to the compiler's own decision, or why there is no estimate."""


def merged(decisions: Iterable[Decisions]) -> Decisions:
    """One document with what all of these decide; where two decide the same subject, what the last of them says.

    >>> merged([Decisions(calls={"a": "call"}), Decisions(calls={"b": "inline"}), Decisions(calls={"a": "inline"})]).calls
    {'a': 'inline', 'b': 'inline'}
    """
    out = Decisions()
    for d in decisions:
        out = Decisions({**out.partitions, **d.partitions}, {**out.plans, **d.plans}, {**out.calls, **d.calls})
    return out


def with_decisions(compilation: Compilation, decisions: Decisions) -> Compilation:
    """The same model with other decisions."""
    given = dict(compilation.stages.given)
    stages = compile_stages(given, compilation.target, decisions, lambda name, make: make(), compilation.hints)
    return Compilation(stages, compilation.observer, compilation.target, decisions, compilation.hints)
