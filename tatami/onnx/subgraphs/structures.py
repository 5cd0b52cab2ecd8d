"""Structure of tensors that holds a value which a loop carries, or which two branches give.

[a, b] before the loop and [a, b, c] after an iteration   ->   stacked: one tensor [L, ..] that grows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tatami.core.expr import Expr
from tatami.frontend.ir import TensorType
from tatami.onnx.importer import Importer
from tatami.onnx.operands import unsupported
from tatami.onnx.sequences import strung
from tatami.onnx.sequences.operators import common_type
from tatami.onnx.values import Strung, Value


@dataclass(frozen=True)
class Structure:
    """The form of a value as the result of a branch or a loop. `items`: elements of a sequence of known length. `element` and
    `axis`: element type of a sequence in one tensor, and the axis along which its elements differ."""

    kind: Literal["tensor", "items", "absent", "stacked", "ragged"]
    items: tuple[Structure, ...] = ()
    element: TensorType | None = None
    axis: int = 0


def structure_of(m: Importer, value: Value) -> Structure:
    """The structure of a value. Raises UnsupportedModel for strings and maps."""
    if value.is_text or value.keys is not None:
        raise unsupported(m, "strings or maps that a branch or a loop gives", "choose between them after the model")
    if value.items is not None:
        return Structure("items", tuple(structure_of(m, v) for v in value.items))
    if value.strung is not None:
        element = strung.element_type(m, value.strung)
        return (
            Structure("ragged", element=element, axis=value.strung.axis)
            if value.strung.lengths
            else Structure("stacked", element=element)
        )
    return Structure("absent" if value.absent else "tensor")


def joined(
    a: tuple[Structure, Sequence[TensorType]], b: tuple[Structure, Sequence[TensorType]], is_open: Callable[[Expr], bool]
) -> Structure | None:
    """The structure that holds both values, each given with the types of its tensors in order; None if there is none.
    `is_open`: predicate of sizes that differ between elements."""
    one, other = a[0], b[0]
    if one.kind == other.kind and one.kind in ("tensor", "absent"):
        return one
    if one.kind == other.kind == "items" and len(one.items) == len(other.items):
        parts = [_part(one, a[1], k) for k in range(len(one.items))], [_part(other, b[1], k) for k in range(len(other.items))]
        found = [joined(x, y, is_open) for x, y in zip(*parts, strict=True)]
        return None if None in found else Structure("items", tuple(s for s in found if s is not None))
    kinds = [_element_types(s, types) for s, types in (a, b)]
    if kinds[0] is None or kinds[1] is None:
        return None
    common = common_type([*kinds[0], *kinds[1]])
    if common is None:
        return None
    kind, axis = common
    axes = {k for k, s in enumerate(kind.shape) if is_open(s)} | {s.axis for s in (one, other) if s.kind == "ragged"}
    axes |= {axis} if axis >= 0 else set()
    if len(axes) > 1:
        return None
    where = next(iter(axes), -1)
    return Structure("stacked", element=kind) if where < 0 else Structure("ragged", element=_at(kind, where), axis=where)


def _at(kind: TensorType, axis: int) -> TensorType:
    """The element's type with a meaningless size along the axis."""
    from tatami.core.expr import ZERO

    return TensorType(kind.dtype, tuple(ZERO if k == axis else s for k, s in enumerate(kind.shape)))


def _element_types(s: Structure, types: Sequence[TensorType]) -> list[TensorType] | None:
    if s.kind in ("stacked", "ragged"):
        return [] if s.element is None else [s.element]
    return list(types) if s.kind == "items" and all(i.kind == "tensor" for i in s.items) else None


def _part(s: Structure, types: Sequence[TensorType], position: int) -> tuple[Structure, Sequence[TensorType]]:
    begin = sum(width(i) for i in s.items[:position])
    return s.items[position], types[begin : begin + width(s.items[position])]


def width(s: Structure) -> int:
    """Number of tensors of a structure."""
    return {"tensor": 1, "stacked": 1, "ragged": 2, "absent": 0, "items": sum(map(width, s.items))}[s.kind]


def converted(m: Importer, value: Value, to: Structure) -> Value:
    """The value converted to structure `to`, which can hold it."""
    if to.kind == "items" and value.items is not None:
        return Value(items=tuple(converted(m, v, s) for v, s in zip(value.items, to.items, strict=True)))
    if to.kind not in ("stacked", "ragged"):
        return value
    assert to.element is not None
    if value.items is None and value.strung is not None:
        return Value(strung=strung.as_ragged(m, value.strung, to.axis)) if to.kind == "ragged" else value
    tensors = [m.data(v) for v in value.items or ()]
    if to.kind == "stacked":
        return Value(strung=strung.stacked(m, tensors, to.element))
    return Value(strung=strung.ragged(m, tensors, to.element, to.axis))


def tensors_of(m: Importer, value: Value) -> list[str]:
    """The tensors of a value in order."""
    if value.items is not None:
        return [t for v in value.items for t in tensors_of(m, v)]
    if value.strung is not None:
        return [value.strung.tensor, *([value.strung.lengths] if value.strung.lengths else [])]
    return [] if value.absent else [m.data(value)]


def rebuilt(m: Importer, s: Structure, tensors: Iterator[str]) -> Value:
    """The value of a structure from the next tensors of the iterator."""
    match s.kind:
        case "tensor":
            return m.result(next(tensors))
        case "absent":
            return Value(absent=True)
        case "items":
            return Value(items=tuple(rebuilt(m, i, tensors) for i in s.items))
        case "stacked":
            return Value(strung=Strung(next(tensors)))
        case "ragged":
            return Value(strung=Strung(next(tensors), s.axis, next(tensors)))
