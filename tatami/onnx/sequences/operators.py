"""Sequences and optional values: lists of values while importing if the length is known, else packed in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr
from tatami.frontend.ir import TensorType
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.data_sizes import data_numbers, read_size, read_sizes
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import data_dependent, known_number, unsupported
from tatami.onnx.sequences import strung
from tatami.onnx.values import Strung, Value

MAX_ITEMS = 64
"""Maximum length of a sequence of known length whose elements are separate tensors; longer ones are packed in one tensor."""


def _items(m: Importer, n: OnnxNode, position: int = 0) -> tuple[Value, ...] | None:
    """The elements of a sequence; None if only a run decides how many there are."""
    value = m.value(n.inputs[position])
    if value.items is None and value.strung is None:
        raise unsupported(m, f"{n.op} of something that is not a sequence", "give a sequence made by the model's own nodes")
    return value.items


def _strung(m: Importer, n: OnnxNode) -> Strung:
    found = strung_of(m, m.value(n.inputs[0]))
    if found is None:
        raise unsupported(m, f"{n.op} at a position that data decide, of tensors of several kinds", "let one axis differ")
    return found


def strung_of(m: Importer, value: Value) -> Strung | None:
    """A sequence packed in one tensor; None if its elements have several dtypes or shapes, or unknown ones because there
    are none."""
    if value.strung is None:
        kinds = [m.type_of(v) if v.is_tensor else None for v in value.items or ()]
        found = common_type([k for k in kinds if k is not None])
        if found is None or None in kinds:
            return None
        tensors = [m.data(v) for v in value.items or ()]
        kind, axis = found
        value.strung = strung.stacked(m, tensors, kind) if axis < 0 else strung.ragged(m, tensors, kind, axis)
    return value.strung


def common_type(kinds: Sequence[TensorType]) -> tuple[TensorType, int] | None:
    """(type of all elements, the one axis along which they differ or -1); None if there is no such type."""
    if not kinds:
        return None
    axis = -1
    for kind in kinds[1:]:
        found = strung.differing(kinds[0], kind, None if axis == -1 else axis)
        if found is None:
            return None
        axis = found
    return kinds[0], axis


def _construct(m: Importer, n: OnnxNode) -> list[Value]:
    return [Value(items=tuple(m.value(i) for i in n.inputs))]


def _empty(m: Importer, n: OnnxNode) -> list[Value]:
    return [Value(items=())]


def _place(m: Importer, n: OnnxNode, position: int, count: int, default: int) -> int:
    place = int(known_number(m, n, position, "position", default))
    if not -count <= place <= count:
        raise unsupported(m, f"position {place} of a sequence of {count}", "give a position inside the sequence")
    return place + count if place < 0 else place


def _is_known(m: Importer, n: OnnxNode, position: int) -> bool:
    return not n.has(position) or m.known(m.value(n.inputs[position])) is not None


def _position(m: Importer, n: OnnxNode, position: int) -> Value | None:
    return m.value(n.inputs[position]) if n.has(position) else None


def _at(m: Importer, n: OnnxNode) -> list[Value]:
    items = _items(m, n)
    if items is None or not _is_known(m, n, 1):
        if items is not None and m.value(n.inputs[1]).ports and not m.reads_sizes:
            raise data_dependent(m, n, "position", 1)
        return [strung.at(m, _strung(m, n), m.value(n.inputs[1]))]
    place = _place(m, n, 1, len(items), 0)
    if place == len(items):
        raise unsupported(m, f"position {place} of a sequence of {len(items)}", "give a position inside the sequence")
    return [items[place]]


def _insert(m: Importer, n: OnnxNode) -> list[Value]:
    items, element = _items(m, n), m.value(n.inputs[1])
    if items is None or (not _is_known(m, n, 2) and items):
        return [Value(strung=strung.inserted(m, _strung(m, n), m.data(element), _position(m, n, 2)))]
    place = _place(m, n, 2, len(items), len(items)) if items else 0
    return [Value(items=(*items[:place], element, *items[place:]))]


def _erase(m: Importer, n: OnnxNode) -> list[Value]:
    items = _items(m, n)
    if items is None or not _is_known(m, n, 1):
        return [Value(strung=strung.erased(m, _strung(m, n), _position(m, n, 1)))]
    place = _place(m, n, 1, len(items), len(items) - 1)
    return [Value(items=(*items[:place], *items[place + 1 :]))]


def _length(m: Importer, n: OnnxNode) -> list[Value]:
    items = _items(m, n)
    if items is not None:
        return [Value(array=np.array(len(items), np.int64))]
    return [Value(sizes=(strung.length(m, _strung(m, n)),), rank=0)]


def _split(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    axis = n.attr("axis", 0) % len(m.shape(x))
    size = m.shape(x)[axis]
    total = size.as_int()
    squeeze = not n.has(1) and not n.attr("keepdims", 1)
    given = m.type_of(m.value(n.inputs[1])) if n.has(1) else None
    if given is not None and given.shape:
        return [_split_by_sizes(m, n, x, axis)]
    step = _step(m, n)
    if step == 1:
        return [_slices(m, x, axis, squeeze=squeeze)]
    number = step.as_int()
    if number is not None and number <= 0:
        raise unsupported(m, f"SplitToSequence into pieces of {number}", "give a positive size")
    if total is None or number is None or total // number > MAX_ITEMS:
        return [Value(strung=_chunks(m, x, axis, step))]
    parts = [number] * (total // number) + ([total % number] if total % number else [])
    return [Value(items=_parts(m, x, axis, tuple(map(expr, parts))))]


def _step(m: Importer, n: OnnxNode) -> Expr:
    """Size of each piece of a split."""
    if not n.has(1):
        return ONE
    sizes = m.sizes(m.value(n.inputs[1]))
    if sizes is not None:
        return sizes[0]
    counts = data_numbers(m, n, 1)
    if counts is None:
        raise data_dependent(m, n, "split", 1)
    return read_size(m, counts[0])


def _parts(m: Importer, x: str, axis: int, sizes: tuple[Expr, ...]) -> tuple[Value, ...]:
    tensors = m.emit("split", [x], {"axis": axis, "sizes": sizes})
    return tuple(m.result(t) for t in tensors)


def _split_by_sizes(m: Importer, n: OnnxNode, x: str, axis: int) -> Value:
    """A split into pieces whose sizes are listed."""
    value = m.value(n.inputs[1])
    sizes = m.sizes(value)
    if sizes is None:
        counts = data_numbers(m, n, 1)
        if counts is None:
            if not m.reads_sizes:
                raise data_dependent(m, n, "split", 1)
            return Value(strung=Strung(x, axis, m.cast(m.data(value), DType.i64)))
        sizes = read_sizes(m, counts)
    return Value(items=_parts(m, x, axis, sizes))


def _slices(m: Importer, x: str, axis: int, *, squeeze: bool) -> Value:
    """Pieces of size 1: all in one tensor, and as separate tensors if there are few."""
    rank, total = len(m.shape(x)), m.shape(x)[axis].as_int()
    order = [axis, *(a for a in range(rank) if a != axis)]
    rows = m.one("permute", [x], {"perm": order}) if axis else x
    whole = Strung(rows if squeeze else m.one("unsqueeze", [rows], {"axes": (axis + 1,)}))
    if total is None or total > MAX_ITEMS:
        return Value(strung=whole)
    tensors = m.emit("split", [x], {"axis": axis, "sizes": (1,) * total}) if total else ()
    if squeeze:
        tensors = tuple(m.one("squeeze", [t], {"axes": (axis,)}) for t in tensors)
    return Value(items=tuple(m.result(t) for t in tensors), strung=whole)


def _chunks(m: Importer, x: str, axis: int, step: Expr) -> Strung:
    """Pieces of `step` elements; the last has the rest."""
    size = m.shape(x)[axis]
    if step.as_int() is not None:
        count = ceildiv(size, step)
    else:
        whole, piece = size_of(m, size, DType.i64), size_of(m, step, DType.i64)
        count = read_size(m, (whole + piece - 1).fn("idiv", piece))
    places = Num(m, m.one("iota", [], {"shape": (count,), "axis": 0, "dtype": DType.i64}))
    piece, left = size_of(m, step, DType.i64), size_of(m, size, DType.i64) - places * size_of(m, step, DType.i64)
    return Strung(x, axis, left.fn("min", piece).tensor)


def _concat(m: Importer, n: OnnxNode) -> list[Value]:
    items = _items(m, n)
    axis, stack = n.attr("axis"), bool(n.attr("new_axis", 0))
    if items is None:
        return [m.result(strung.concatenated(m, _strung(m, n), axis, new_axis=stack))]
    if not items:
        raise unsupported(m, "ConcatFromSequence of an empty sequence", "join one tensor or more")
    tensors = [m.data(v) for v in items]
    rank = len(m.shape(tensors[0])) + stack
    return [m.result(m.one("stack" if stack else "concat", tensors, {"axis": axis % rank}))]


def _optional(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.value(n.inputs[0]) if n.has(0) else Value(absent=True)]


def _has_element(m: Importer, n: OnnxNode) -> list[Value]:
    present = n.has(0) and not m.value(n.inputs[0]).absent
    return [Value(array=np.array(present))]


def _get_element(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.value(n.inputs[0])]


SEQUENCE: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": _length,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}
"""Handlers of this file by operator."""
