"""Sizes that a graph divides by are not 0: equations that the signature records, checked when sizes are bound.

A symbol may be 0. If `12 // N` is the size of a tensor or an attribute, N has to be more: a processor that divides by 0 only
stops the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.core.algebra.order import is_always_less
from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE, ZERO, Expr, Extreme, Floor, minimum
from tatami.core.signature import Equation
from tatami.frontend.ir import Node, TensorType
from tatami.frontend.operation import attributes
from tatami.frontend.ops import OPS


def nonzero_divisors(nodes: tuple[Node, ...], tensors: Mapping[str, TensorType]) -> tuple[Equation, ...]:
    """``min(1, d) == 1`` for every divisor d of the nodes that is not proved to be at least 1, at the node that has it."""
    found: dict[Expr, str] = {}
    for node in nodes:
        for e in _sizes_of(node, tensors):
            for d in _divisors(e):
                if not is_always_less(ZERO, d) and not (node.op == "view" and any(map(_is_coordinate, free_vars(d)))):
                    found.setdefault(d, node.name)
    return tuple(Equation(minimum(ONE, d), ONE, at) for d, at in found.items())


def _sizes_of(node: Node, tensors: Mapping[str, TensorType]) -> Iterator[Expr]:
    for name in node.outputs:
        yield from tensors[name].shape if name in tensors else ()
    if node.op in OPS and "//" in str(node.attrs):
        yield from _expressions(attributes(OPS[node.op], node))


def _expressions(value: object) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _expressions(item)
    elif isinstance(value, Mapping):
        yield from _expressions(list(value.values()))
    elif isinstance(value, msgspec.Struct):
        yield from _expressions([getattr(value, f) for f in value.__struct_fields__])


def _divisors(e: Expr) -> Iterator[Expr]:
    for mono, _ in e.terms:
        for atom in mono:
            if isinstance(atom, Floor):
                yield from (*_divisors(atom.num), *_divisors(atom.den), atom.den)
            elif isinstance(atom, Extreme):
                for part in atom.args:
                    yield from _divisors(part)


def _is_coordinate(name: str) -> bool:
    return name[:1] == "i" and name[1:].isdigit()
