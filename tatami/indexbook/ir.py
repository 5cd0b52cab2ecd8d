"""Per value: axes, domain, access maps (spec 3 §4, spec 5 §1). A side table of tiny, keyed by the same ids.

A *base* value is anything but movement: an input, a computed value, a RESULT. Movement is composed away: every
operand of a value reads base values directly, through maps over the value's own axes i0, i1, … (and r0, r1, … for the
axes a reduce removes). Padding makes an operand piecewise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.scalar import Scalar


class Axis(msgspec.Struct, frozen=True):
    """`id` is unique in the book and survives a reduce of other axes; `name` is i0, i1, … (r0, … when removed)."""

    id: int
    name: str
    size: Expr
    kind: Literal["iter", "reduce", "broadcast"] = "iter"


class Guard(msgspec.Struct, frozen=True):
    """``0 <= index < size``."""

    index: Expr
    size: Expr


class Access(msgspec.Struct, frozen=True):
    """A read of base value `value` at `map`, one expression per axis of it (empty for rank 0)."""

    value: str
    map: tuple[Expr, ...]


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where all guards hold and no earlier piece applies: a read, or a constant."""

    guards: tuple[Guard, ...]
    read: Access | None = None
    fill: Scalar | None = None


class Operand(msgspec.Struct, frozen=True):
    """A piecewise read; the last piece has no guards."""

    pieces: tuple[Piece, ...]


class Gathered(msgspec.Struct, frozen=True):
    """The data of a gather: value `value` (base, or a movement value that has to be in memory) at `map`, where an
    entry None is the value of the next index operand."""

    value: str
    map: tuple[Expr | None, ...]


class IndexInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """For a movement value the one operand is its composed view; for others one operand per src, over axes and (for
    a reduce) reduced. Leaves (INPUT, CONST, SIZE, IOTA, RESULT) have none, nor has a CALL: it reads its sources whole
    and has no axes.

    A gather has its data in `gathered`; `operands` are the index operands in the order the None entries take them.
    A scatter has operands target (over axes), updates, indices… (over `reduced`: the axes of the updates), and the
    target coordinates in `scattered`, None where an index operand says it.
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
    values: dict[str, IndexInfo]
