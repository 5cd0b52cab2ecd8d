"""Sequences and optional values: they exist only while importing, as lists of values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import known_number, numbers, unsupported
from tatami.onnx.values import Value


def _items(m: Importer, n: OnnxNode, position: int = 0) -> tuple[Value, ...]:
    items = m.value(n.inputs[position]).items
    if items is None:
        raise unsupported(m, f"{n.op} of something that is no sequence", "give a sequence made by the model's own nodes")
    return items


def _construct(m: Importer, n: OnnxNode) -> list[Value]:
    return [Value(items=tuple(m.value(i) for i in n.inputs))]


def _empty(m: Importer, n: OnnxNode) -> list[Value]:
    return [Value(items=())]


def _place(m: Importer, n: OnnxNode, position: int, count: int, default: int) -> int:
    place = int(known_number(m, n, position, "position", default))
    if not -count <= place <= count:
        raise unsupported(m, f"position {place} of a sequence of {count}", "give a position inside the sequence")
    return place + count if place < 0 else place


def _at(m: Importer, n: OnnxNode) -> list[Value]:
    items = _items(m, n)
    place = _place(m, n, 1, len(items), 0)
    if place == len(items):
        raise unsupported(m, f"position {place} of a sequence of {len(items)}", "give a position inside the sequence")
    return [items[place]]


def _insert(m: Importer, n: OnnxNode) -> list[Value]:
    items = _items(m, n)
    place = _place(m, n, 2, len(items), len(items))
    return [Value(items=(*items[:place], m.value(n.inputs[1]), *items[place:]))]


def _erase(m: Importer, n: OnnxNode) -> list[Value]:
    items = _items(m, n)
    place = _place(m, n, 1, len(items), len(items) - 1)
    return [Value(items=(*items[:place], *items[place + 1 :]))]


def _length(m: Importer, n: OnnxNode) -> list[Value]:
    return [Value(array=np.array(len(_items(m, n)), np.int64))]


def _split(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    axis = n.attr("axis", 0) % len(m.shape(x))
    size = m.shape(x)[axis]
    total = size.as_int()
    squeeze = not n.has(1) and not n.attr("keepdims", 1)
    given = m.known(m.value(n.inputs[1])) if n.has(1) else None
    if given is not None and given.ndim == 1:
        parts = [int(v) for v in given]
    else:
        step = numbers(m, n, 1, "split") or [1]
        if total is None:
            raise unsupported(m, f"SplitToSequence of an axis of size {size}", "give the axis a size that is a number")
        parts = [step[0]] * (total // step[0]) + ([total % step[0]] if total % step[0] else [])
    tensors = m.emit("split", [x], {"axis": axis, "sizes": tuple(parts)})
    if squeeze:
        tensors = tuple(m.one("squeeze", [t], {"axes": (axis,)}) for t in tensors)
    return [Value(items=tuple(m.result(t) for t in tensors))]


def _concat(m: Importer, n: OnnxNode) -> list[Value]:
    tensors = [m.data(v) for v in _items(m, n)]
    axis, stack = n.attr("axis"), bool(n.attr("new_axis", 0))
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
