"""Domains and accesses of the SCoP part, contraction patterns, dependences, fusion edges (spec 3 §5, §7).

Only index expressions (`core.expr.Expr`), no arithmetic and no isl objects. `show` prints isl text; analyses build isl
objects by the Aff API in a per-run cache.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.expr import Expr
from tatami.core.scalar import Scalar
from tatami.indexbook.ir import Axis, Guard


class PolyAccess(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of one operand. `may`: a may-access of whole axes (gather, scatter), with None entries."""

    tensor: str
    map: tuple[Expr | None, ...]
    guards: tuple[Guard, ...] = ()
    may: bool = False


class Outside(msgspec.Struct, frozen=True):
    """The other piece of a guarded read: the points where for each group one of the guards fails, at which the operand is
    `fill`."""

    groups: tuple[tuple[Guard, ...], ...]
    fill: Scalar


class Statement(msgspec.Struct, frozen=True):
    """A base value in the SCoP: its iteration domain (axes, then reduced axes), its reads, and the pieces of its operands that
    read nothing. `copy`: a movement that needs memory of its own: an output of the program, an argument of a call, gathered
    data."""

    value: str
    kind: Literal["elementwise", "reduce", "scan", "gather", "scatter", "generate", "copy"]
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    reads: tuple[PolyAccess, ...]
    outside: tuple[Outside, ...] = ()


class ContractionPattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reduce that is a contraction: ``sum over reduce_idx of lhs * rhs``. Names are the statement's axes (i…, r…).

    Axis groups by role: batch in both operands and the result, m only in lhs, n only in rhs, k reduced. conv has
    `affine_offsets`: operand coordinates that mix axes, keyed "lhs.2" (operand, dimension).
    """

    value: str
    product: str
    pattern: Literal["matmul", "batched_matmul", "conv", "dot"]
    lhs: PolyAccess
    rhs: PolyAccess
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    affine_offsets: dict[str, Expr] = {}
    role: str = ""
    """qk_matmul or pv_matmul around a row softmax (spec 3 §15.3), else ""; a label for readers without effect."""


class RowSoftmax(msgspec.Struct, frozen=True):
    """The values between the two contractions of an attention (spec 3 §15.3): `value` is what the second one multiplies, made
    of the scores `source` by the reduces of rows `reduces` and elementwise values; a label for readers without effect."""

    value: str
    source: str
    reduces: tuple[str, ...]


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """One read between statements, and whether the consumer's Region may hold the producer (computed once: D2.11)."""

    producer: str
    consumer: str
    fusible: bool
    rule: str
    """The rule that allows or forbids it, e.g. pointwise, epilogue, same_rows, halo, fan_out, non_scop, shape."""
    halo: dict[str, int] = {}
    """Extra elements per producer axis that one consumer tile needs beyond its own; empty without a halo."""
    halo_bytes: Expr | None = None
    change: str = ""
    """A change that would make a forbidden edge legal; "" for a legal one."""


class Dependence(msgspec.Struct, frozen=True):
    """An order between two statements that share memory."""

    kind: Literal["true", "anti", "output"]
    source: str
    target: str


class Excluded(msgspec.Struct, frozen=True):
    """A value outside the SCoP, with the reason."""

    value: str
    reason: str


class PolyView(msgspec.Struct, frozen=True):
    """The polyhedral view of one program."""

    statements: tuple[Statement, ...]
    patterns: tuple[ContractionPattern, ...]
    edges: tuple[Edge, ...]
    dependences: tuple[Dependence, ...]
    excluded: tuple[Excluded, ...]
    row_softmaxes: tuple[RowSoftmax, ...] = ()
