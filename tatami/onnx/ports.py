"""How the values that go in and out of an ONNX model lie in the flat signature of its program.

A sequence of three tensors is three ports, `x.0`, `x.1`, `x.2`; an empty optional value has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tatami.core.module import Module
from tatami.frontend.ir import Graph


@dataclass(frozen=True)
class One:
    """A tensor: the port of this name. Empty: nothing reads it, the program was specialised on its content."""

    port: str


@dataclass(frozen=True)
class Many:
    """A sequence."""

    items: tuple[Form, ...]


@dataclass(frozen=True)
class InOne:
    """A sequence whose length only a run tells: the port of a tensor with its elements along a new first axis; with `lengths`
    they lie one after the other along `axis`, and that port has their sizes."""

    port: str
    axis: int = 0
    lengths: str = ""


@dataclass(frozen=True)
class Absent:
    """An optional value without content."""


Form: TypeAlias = One | Many | InOne | Absent


@dataclass(frozen=True)
class Imported:
    """A model as a module, and the forms of what goes in and out, by the model's names and order."""

    module: Module[Graph]
    inputs: Mapping[str, Form]
    outputs: tuple[Form, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """The inputs that the module was specialised on, with what they held."""


def spread(form: Form, value: Any, into: MutableMapping[str, Any]) -> None:
    """Put the arrays of a value under their ports."""
    match form:
        case One(port):
            if port:
                into[port] = value
        case Many(items):
            for item, part in zip(items, value, strict=True):
                spread(item, part, into)
        case InOne() | Absent():
            pass


def collect(form: Form, results: Mapping[str, Any]) -> Any:
    """The value of a form from the results by port: an array, a list, or None."""
    match form:
        case One(port):
            return results[port]
        case Many(items):
            return [collect(item, results) for item in items]
        case InOne(port, axis, lengths):
            whole = results[port]
            if not lengths:
                return [whole[k] for k in range(len(whole))]
            ends = [0, *itertools.accumulate(int(size) for size in results[lengths])]
            lead = (slice(None),) * axis
            return [whole[(*lead, slice(first, last))] for first, last in itertools.pairwise(ends)]
        case Absent():
            return None
