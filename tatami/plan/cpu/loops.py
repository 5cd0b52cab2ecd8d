"""Plans of loops among the kinds of CPU plans: plain loops, and vectors."""

from __future__ import annotations

from collections.abc import Iterable

from tatami.plan.cpu_kind import Asked, CpuKind
from tatami.plan.ir import Candidate, CpuRows, Rejected, Scalar
from tatami.plan.loops.alternatives import rows_alternatives
from tatami.plan.loops.estimate import loops_estimate
from tatami.plan.loops.phase_rules import phase_rules
from tatami.plan.loops.rows import rows_candidates, scalar_candidate
from tatami.plan.loops.show import show_phases
from tatami.region.views.kinds import Kind

EVERY: frozenset[Kind] = frozenset({"map", "rows", "stencil", "scan", "scatter", "contraction", "streaming_pair"})
"""Kinds of Regions that loops compute: all but opaque ones."""


def scalar_candidates(asked: Asked) -> Iterable[Candidate]:
    """The plan of plain loops, which fits every Region."""
    yield scalar_candidate(asked.region, asked.facts, asked.bones, asked.target, asked.sizes)


def vector_candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    """Plans of vector loops, one per width, or the reason against them."""
    return rows_candidates(asked.region, asked.facts, asked.bones, asked.target, asked.sizes)


SCALAR = CpuKind(Scalar, EVERY, scalar_candidates, loops_estimate, phase_rules, show_phases)
"""The kind of plain loops, one element at a time."""
ROWS = CpuKind(CpuRows, EVERY, vector_candidates, loops_estimate, phase_rules, show_phases, rows_alternatives)
"""The kind of vector loops over fused nests."""
