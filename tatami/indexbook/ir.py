"""Axes, domain and access maps of each value (spec 3 §4, spec 5 §1): a side table of tiny, keyed by the same ids.

A *base* value is anything but movement: an input, a computed value, a RESULT. Movement is composed away: every operand of a
value reads base values directly, through maps over the value's own axes i0, i1, … (and r0, r1, … for the axes a reduce
removes). Padding makes an operand piecewise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.scalar import Scalar


class Axis(msgspec.Struct, frozen=True):
    """One axis. `id`: unique in the book, kept by a reduce of other axes; `name`: i0, i1, … (r0, … for removed axes)."""

    id: int
    name: str
    size: Expr
    kind: Literal["iter", "reduce", "broadcast"] = "iter"


class Guard(msgspec.Struct, frozen=True):
    """The condition ``0 <= index < size``."""

    index: Expr
    size: Expr


class Access(msgspec.Struct, frozen=True):
    """A read of base value `value` at `map`, one expression per axis of it (empty for rank 0)."""

    value: str
    map: tuple[Expr, ...]


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """A read, or a constant, where all guards hold and no earlier piece applies."""

    guards: tuple[Guard, ...]
    read: Access | None = None
    fill: Scalar | None = None


class Operand(msgspec.Struct, frozen=True):
    """A piecewise read; the last piece has no guards."""

    pieces: tuple[Piece, ...]


class Gathered(msgspec.Struct, frozen=True):
    """The data of a gather: value `value` (base, or a movement value that must be in memory) at `map`; an entry None is the
    value of the next index operand."""

    value: str
    map: tuple[Expr | None, ...]


class IndexInfo(msgspec.Struct, frozen=True):
    """Axes and operands of one value. A movement value has one operand, its composed view; other values have one per src, over
    axes and (for a reduce) reduced. Leaves (INPUT, CONST, SIZE, IOTA, RESULT) have none. A CALL has none either: it reads
    its sources whole and has no axes.

    A gather has its data in `gathered`; `operands` are the index operands in the order of the None entries. A scatter has
    operands target (over axes), updates, indices… (over `reduced`: the axes of the updates), and the target coordinates in
    `scattered`, with None for coordinates from an index operand.
    """

    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...] = ()
    reduced: tuple[Axis, ...] = ()
    """Removed axes, renamed r0, r1, …, with the ids they had in the operand."""
    reduce_axes: tuple[int, ...] = ()
    """Ids of `reduced` (spec 3 §4.3(4))."""
    acc_dtype: DType | None = None
    flags: tuple[Literal["non_scop"], ...] = ()
    is_movement: bool = False
    gathered: Gathered | None = None
    scattered: tuple[Expr | None, ...] | None = None


class IndexBook(msgspec.Struct, frozen=True):
    """The entry of each value of a program, by id."""

    values: dict[str, IndexInfo]
