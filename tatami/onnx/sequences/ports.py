"""Inputs and outputs of an ONNX model in the flat signature of its program.

A sequence of three tensors is three ports, `x.0`, `x.1`, `x.2`; an empty optional value has none. Strings are codes
(words.py), an input map is its keys and its values, an output sequence of maps is one matrix.

    arrays, words = arguments_of(imported, inputs)
    outputs = results_of(imported, run(arrays), words)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

import msgspec
import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.module import Module
from tatami.frontend.ir import Graph
from tatami.onnx.strings.words import Joined, Table, Words, number_text


class One(msgspec.Struct, frozen=True, tag=True):
    """A tensor: the port of this name. "" if the program was specialised on its content, so that nothing reads it."""

    port: str


class Many(msgspec.Struct, frozen=True, tag=True):
    """A sequence of known length."""

    items: tuple[Form, ...]


class InOne(msgspec.Struct, frozen=True, tag=True):
    """A sequence whose length only a run decides: the port of a tensor with its elements along a new first axis; with
    `lengths` they are joined along `axis`, and that port has their sizes."""

    port: str
    axis: int = 0
    lengths: str = ""


class Absent(msgspec.Struct, frozen=True, tag=True):
    """An optional value without content."""


class Text(msgspec.Struct, frozen=True, tag=True):
    """A tensor of strings: the port of its codes."""

    port: str


class Printed(msgspec.Struct, frozen=True, tag=True):
    """An output of strings that are printed numbers: the port of the numbers."""

    port: str


class Pairs(msgspec.Struct, frozen=True, tag=True):
    """An input map: the ports of its keys, in their order, and of their values. Dtypes are numpy's names; "str" for words."""

    keys: str
    values: str
    key_dtype: str
    value_dtype: str


class Maps(msgspec.Struct, frozen=True, tag=True):
    """An output sequence of maps: the port of their values, a row for each map and a column for each key."""

    port: str
    keys: tuple[str | int, ...]


Form: TypeAlias = One | Many | InOne | Absent | Text | Printed | Pairs | Maps


class Ports(msgspec.Struct, frozen=True):
    """An import without its module: the forms of inputs and outputs, and the codes of words."""

    inputs: dict[str, Form]
    outputs: tuple[Form, ...]
    vocabulary: dict[str, int]


@dataclass(frozen=True)
class Imported:
    """A model as a module, and the forms of its inputs and outputs, by the model's names and order."""

    module: Module[Graph]
    inputs: Mapping[str, Form]
    outputs: tuple[Form, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """The inputs on whose content the module is specialised, with that content."""
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    """The codes of the model's own words."""
    word_steps: tuple[Table | Joined, ...] = ()
    """Tables and joined texts made from the words of a call before the program runs, in order; each adds ports."""


def arguments_of(imported: Imported, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Words]:
    """The arrays of the program by port, and the words of this call. Raises InputMismatch."""
    arrays: dict[str, Any] = {}
    words = Words(imported.vocabulary)
    for name, form in imported.inputs.items():
        spread(form, inputs[name], arrays, words)
    words.make(imported.word_steps, arrays)
    return arrays, words


def results_of(imported: Imported, results: Mapping[str, Any], words: Words) -> tuple[Any, ...]:
    """The outputs in the model's order from the program's results by port."""
    return tuple(collect(form, results, words) for form in imported.outputs)


def spread(form: Form, value: Any, into: MutableMapping[str, Any], words: Words) -> None:
    """Put the arrays of a value into `into`, by port. Raises InputMismatch."""
    match form:
        case One(port):
            if port:
                into[port] = value
        case Many(items):
            for item, part in zip(items, value, strict=True):
                spread(item, part, into, words)
        case Text(port):
            into[port] = words.encode(port, value)
        case Pairs():
            _spread_pairs(form, value, into, words)
        case InOne() | Absent() | Printed() | Maps():
            pass
        case _:
            assert_never(form)


def _spread_pairs(form: Pairs, value: Any, into: MutableMapping[str, Any], words: Words) -> None:
    if not isinstance(value, Mapping):
        raise fail("InputMismatch", form.keys, f"a {type(value).__name__} for an input that is a map", "give a dict")
    columns = (form.keys, form.key_dtype, list(value)), (form.values, form.value_dtype, list(value.values()))
    order = sorted(range(len(value)), key=lambda i: columns[0][2][i])
    for port, dtype, items in columns:
        listed = [items[i] for i in order]
        if dtype == "str":
            into[port] = words.encode(port, np.array([*listed, None], object)[:-1])
        else:
            try:
                into[port] = np.array(listed, dtype)
            except (ValueError, TypeError, OverflowError):
                raise fail(
                    "InputMismatch", port, f"the map holds a value that is not {dtype}", f"give a map of {dtype}"
                ) from None


def collect(form: Form, results: Mapping[str, Any], words: Words) -> Any:
    """The value of a form from the results by port: an array, a list, or None."""
    match form:
        case One(port):
            return results[port]
        case Many(items):
            return [collect(item, results, words) for item in items]
        case InOne(port, axis, lengths):
            whole = results[port]
            if not lengths:
                return [whole[k] for k in range(len(whole))]
            ends = [0, *itertools.accumulate(int(size) for size in results[lengths])]
            lead = (slice(None),) * axis
            return [whole[(*lead, slice(first, last))] for first, last in itertools.pairwise(ends)]
        case Text(port):
            return words.decode(results[port])
        case Printed(port):
            return printed(results[port])
        case Maps(port, keys):
            return [dict(zip(keys, row, strict=True)) for row in results[port].tolist()]
        case Absent() | Pairs():
            return None
        case _:
            assert_never(form)


def printed(numbers: np.ndarray) -> np.ndarray:
    """Numbers as text, as ONNX Runtime writes them: floats with 8 digits, NaN, INF and -INF."""
    out = np.empty(numbers.shape, object)
    out[...] = np.reshape([number_text(v) for v in numbers.reshape(-1)], numbers.shape) if numbers.size else ""
    return out
