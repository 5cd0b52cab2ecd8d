"""One ONNX node with its attributes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tatami.onnx.files.definitions import Stored

LONG = 4096
"""Minimum elements of a list that is converted to a Python list only on demand: a forest has millions of nodes."""


class Attributes(Mapping[str, Any]):
    """Attributes by name as Python values; lists in `long` are converted on first access."""

    def __init__(self, values: dict[str, Any], long: Mapping[str, onnx.AttributeProto]) -> None:
        self._values = values
        self._long = long

    def __getitem__(self, name: str) -> Any:
        if name not in self._values and name in self._long:
            self._values[name] = _list(self._long[name])
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._values, *self._long)))

    def __len__(self) -> int:
        return len(self._values.keys() | self._long.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._long

    def repeated(self, name: str) -> onnx.AttributeProto | None:
        """The message of a long list, or None for another attribute."""
        return self._long.get(name)


@dataclass(frozen=True)
class OnnxNode:
    """One node: operator, domain, names of operands and results, attributes. An empty name is an absent one."""

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute `name`, or the default if it is absent."""
        return self.attrs.get(name, default)

    def numbers(self, name: str, dtype: Any) -> np.ndarray:
        """A list of numbers, or a tensor, as a rank-1 array; empty if it is absent."""
        a = self.attrs.repeated(name) if isinstance(self.attrs, Attributes) else None
        if a is not None and a.type != onnx.AttributeProto.STRINGS:
            given = a.ints if a.type == onnx.AttributeProto.INTS else a.floats
            return np.fromiter(given, np.int64 if given is a.ints else np.float32, len(given)).astype(dtype, copy=False)
        found = self.attr(name)
        return np.asarray([] if found is None else found, dtype).reshape(-1)

    def words(self, name: str) -> tuple[list[str], np.ndarray]:
        """(the distinct words of a list, for each element the index of its word)."""
        a = self.attrs.repeated(name) if isinstance(self.attrs, Attributes) else None
        given = a.strings if a is not None else self.attr(name) or []
        table = {w: i for i, w in enumerate(dict.fromkeys(given))}
        which = np.fromiter(map(table.__getitem__, given), np.int64, len(given))  # no Python per word: a forest has millions
        return [str(_text(w)) for w in table], which

    def has(self, position: int) -> bool:
        """True if the optional operand is given."""
        return len(self.inputs) > position and bool(self.inputs[position])

    def wants(self, position: int) -> bool:
        """True if the result has a name, so that it may be read."""
        return len(self.outputs) > position and bool(self.outputs[position])


def read_node(node: onnx.NodeProto, tensor: Callable[[Stored], np.ndarray]) -> OnnxNode:
    """The node with its attributes as Python values. `tensor`: reader of the tensors that attributes hold."""
    attrs: dict[str, Any] = {}
    long: dict[str, onnx.AttributeProto] = {}
    for a in node.attribute:
        if a.type == onnx.AttributeProto.TENSOR:
            attrs[a.name] = tensor(a.t)
        elif a.type == onnx.AttributeProto.SPARSE_TENSOR:
            attrs[a.name] = tensor(a.sparse_tensor)
        elif a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            attrs[a.name] = a.g
        elif a.type == onnx.AttributeProto.TYPE_PROTO:
            attrs[a.name] = a.tp
        elif a.type in _LISTS and len(_LISTS[a.type](a)) > LONG:
            long[a.name] = a
        elif a.type in _LISTS:
            attrs[a.name] = _list(a)
        else:
            value = onnx.helper.get_attribute_value(a)
            attrs[a.name] = _text(value) if isinstance(value, str | bytes | int | float) else list(value)
    kept = Attributes(attrs, long) if long else attrs
    return OnnxNode(node.op_type, node.domain, tuple(node.input), tuple(node.output), kept)


_LISTS: dict[int, Callable[[onnx.AttributeProto], Any]] = {
    onnx.AttributeProto.INTS: lambda a: a.ints,
    onnx.AttributeProto.FLOATS: lambda a: a.floats,
    onnx.AttributeProto.STRINGS: lambda a: a.strings,
}


def _list(a: onnx.AttributeProto) -> list[Any]:
    return [_text(v) for v in a.strings] if a.type == onnx.AttributeProto.STRINGS else list(_LISTS[a.type](a))


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
