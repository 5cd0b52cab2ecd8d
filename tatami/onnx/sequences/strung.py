"""Sequences whose length only a run decides: their elements in one tensor of the graph.

stacked   [a, b, c], each [2, 3]            ->   a tensor [n, 2, 3]
ragged    [a, b], shapes [2, 3] and [5, 3]  ->   a tensor [7, 3], the elements one after the other, and their sizes [2, 5]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, expr
from tatami.frontend.ir import TensorType
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.data_sizes import read_position, read_size, read_sizes
from tatami.onnx.importer import Importer
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Strung, Value


def element_type(m: Importer, s: Strung) -> TensorType:
    """The type of the elements; for a ragged sequence the size along its axis has no meaning."""
    kind = m.tensors[s.tensor]
    return TensorType(kind.dtype, kind.shape if s.lengths else kind.shape[1:])


def length(m: Importer, s: Strung) -> Expr:
    """Number of elements of a sequence."""
    return m.shape(s.lengths or s.tensor)[0]


def stacked(m: Importer, elements: Sequence[str], kind: TensorType) -> Strung:
    """Elements of one type as a sequence."""
    if not elements:
        return Strung(_zeros(m, kind.dtype, (expr(0), *kind.shape)))
    return Strung(m.one("stack", [m.one("reshape", [t], {"shape": kind.shape}) for t in elements], {"axis": 0}))


def ragged(m: Importer, elements: Sequence[str], kind: TensorType, axis: int) -> Strung:
    """Elements that differ along `axis` as a sequence."""
    if not elements:
        shape = tuple(expr(0) if a == axis else s for a, s in enumerate(kind.shape))
        return Strung(_zeros(m, kind.dtype, shape), axis, m.add_constant(np.zeros(0, np.int64)))
    sizes = [m.one("reshape", [size_of(m, m.shape(t)[axis], DType.i64).tensor], {"shape": (ONE,)}) for t in elements]
    return Strung(m.one("concat", elements, {"axis": axis}), axis, m.one("concat", sizes, {"axis": 0}))


def as_ragged(m: Importer, s: Strung, axis: int) -> Strung:
    """A stacked sequence as a ragged one, whose elements may differ along `axis`."""
    if s.lengths:
        return s
    count, *shape = m.shape(s.tensor)
    size = size_of(m, shape[axis], DType.i64).tensor
    return Strung(_joined(m, s.tensor, axis), axis, m.one("expand", [size], {"shape": (count,), "dims": ()}))


def _joined(m: Importer, tensor: str, axis: int) -> str:
    """[n, .., k, ..] with axes n and k merged: the elements one after the other."""
    count, *shape = m.shape(tensor)
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
    moved = m.one("permute", [tensor], {"perm": order})
    return m.one("reshape", [moved], {"shape": (*shape[:axis], count * shape[axis], *shape[axis + 1 :])})


def _zeros(m: Importer, dtype: DType, shape: Sequence[Expr]) -> str:
    return m.one("expand", [m.number(0, dtype)], {"shape": tuple(shape), "dims": ()})


def at(m: Importer, s: Strung, position: Value) -> Value:
    """One element; a negative position counts from the end."""
    place = m.rank_0(m.data(position))
    if not s.lengths:
        return m.result(m.one("take", [s.tensor, place], {"axis": 0}))
    first, last = _ends(m, s, place)
    return m.result(_part(m, s.tensor, s.axis, first, last))


def _ends(m: Importer, s: Strung, place: str) -> tuple[Expr, Expr]:
    """(first position, end position) of an element of a ragged sequence."""
    before = Num(m, m.one("cumsum", [s.lengths], {"axis": 0}))
    size = Num(m, m.one("take", [s.lengths, place], {"axis": 0}))
    last = Num(m, m.one("take", [before.tensor, place], {"axis": 0}))
    first, width = read_sizes(m, [last - size, size])
    return first, first + width


def _part(m: Importer, tensor: str, axis: int, first: Expr, last: Expr) -> str:
    shape = m.shape(tensor)
    starts = tuple(first if a == axis else expr(0) for a in range(len(shape)))
    stops = tuple(last if a == axis else size for a, size in enumerate(shape))
    return m.one("slice", [tensor], {"starts": starts, "stops": stops})


def inserted(m: Importer, s: Strung, element: str, position: Value | None) -> Strung:
    """The sequence with one more element: at the end if `position` is None, else before that element."""
    kind, own = m.tensors[element], element_type(m, s)
    axis = differing(own, kind, s.axis if s.lengths else None)
    if axis is None:
        raise unsupported(m, f"a sequence of {own.dtype} tensors that differ in more than one axis", "let one size differ")
    if axis >= 0:
        return _put_ragged(m, as_ragged(m, s, axis), element, position)
    row = m.one("unsqueeze", [element], {"axes": (0,)})
    place = None if position is None else _position(m, position, length(m, s))
    return Strung(_put(m, s.tensor, 0, row, place))


def _put_ragged(m: Importer, s: Strung, element: str, position: Value | None) -> Strung:
    size = m.one("reshape", [size_of(m, m.shape(element)[s.axis], DType.i64).tensor], {"shape": (ONE,)})
    place, first = None, None
    if position is not None:
        place = _position(m, position, length(m, s))
        before = _part(m, s.lengths, 0, expr(0), place)
        first = read_size(m, Num(m, m.one("reduce_sum", [before], {"axes": (0,)})))
    return Strung(_put(m, s.tensor, s.axis, element, first), s.axis, _put(m, s.lengths, 0, size, place))


def _put(m: Importer, tensor: str, axis: int, more: str, place: Expr | None) -> str:
    """`tensor` with `more` inserted on an axis at `place`, or at the end if it is None."""
    if place is None:
        return m.one("concat", [tensor, more], {"axis": axis})
    before, after = _part(m, tensor, axis, expr(0), place), _part(m, tensor, axis, place, m.shape(tensor)[axis])
    return m.one("concat", [before, more, after], {"axis": axis})


def erased(m: Importer, s: Strung, position: Value | None) -> Strung:
    """The sequence without one element, the last if `position` is None."""
    place = Value(sizes=(expr(-1),), rank=0) if position is None else position
    number, count = m.rank_0(m.data(place)), length(m, s)
    ends = _ends(m, s, number) if s.lengths else None
    first = _position(m, place, count)
    kept = _without(m, s.lengths or s.tensor, 0, first, first + 1)
    return Strung(kept) if ends is None else Strung(_without(m, s.tensor, s.axis, *ends), s.axis, kept)


def _without(m: Importer, tensor: str, axis: int, first: Expr, last: Expr) -> str:
    parts = [_part(m, tensor, axis, expr(0), first), _part(m, tensor, axis, last, m.shape(tensor)[axis])]
    return m.one("concat", parts, {"axis": axis})


def _position(m: Importer, position: Value, count: Expr) -> Expr:
    sizes = m.sizes(position)
    number = None if sizes is None else sizes[0].as_int()
    if sizes is not None and number is not None:
        return sizes[0] if number >= 0 else count + number
    return read_position(m, Num(m, m.rank_0(m.data(position))).cast(DType.i64), count)


def concatenated(m: Importer, s: Strung, axis: int, *, new_axis: bool) -> str:
    """All elements joined along an axis; with `new_axis` stacked along a new one. Raises UnsupportedModel."""
    rank = len(element_type(m, s).shape)
    if new_axis and not s.lengths:
        order = list(range(1, rank + 1))
        order.insert(axis % (rank + 1), 0)
        return m.one("permute", [s.tensor], {"perm": order})
    if not new_axis and not s.lengths:
        return _joined(m, s.tensor, axis % rank)
    if not new_axis and s.axis == axis % rank:
        return s.tensor
    raise unsupported(m, f"elements of other sizes along axis {s.axis} joined along axis {axis}", "join them along that axis")


def differing(a: TensorType, b: TensorType, axis: int | None) -> int | None:
    """The one axis along which elements of two types differ; -1 if they are equal; None if they cannot be in one sequence.
    `axis`: the axis along which other elements differ, or None."""
    if a.dtype != b.dtype or len(a.shape) != len(b.shape):
        return None
    found = {k for k, (s, t) in enumerate(zip(a.shape, b.shape, strict=True)) if s != t}
    found |= set() if axis is None else {axis}
    return None if len(found) > 1 else next(iter(found), -1)
