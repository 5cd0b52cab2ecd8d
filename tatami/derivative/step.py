"""Interface of a rule of differentiation: `Step`, one node and the cotangents of its results.

A *cotangent* of a tensor is the derivative of the differentiated number by each of its elements, in the tensor's own shape and
dtype. A rule returns a cotangent for each operand; None where it is zero everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tatami.core.algebra.order import is_at_most
from tatami.core.expr import ONE, ZERO, Expr, Shape, product
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import Node
from tatami.frontend.operation import Site, attributes, axes_of, axis_of
from tatami.frontend.operations.movement import Pad
from tatami.frontend.ops import OPS

Cotangents: TypeAlias = "Sequence[Tensor | None]"


@dataclass(frozen=True)
class Step:
    """One node while its adjoint is added to `graph`."""

    graph: Graph
    node: Node
    attrs: Any
    operands: tuple[Tensor | None, ...]
    results: tuple[Tensor, ...]
    cotangents: tuple[Tensor | None, ...]
    """Cotangent of each result; None where it is zero."""
    needed: tuple[bool, ...]
    """True for each operand whose cotangent is read."""

    def __getitem__(self, i: int) -> Tensor:
        value = self.operands[i]
        assert value is not None
        return value

    def optional(self, i: int) -> Tensor | None:
        """Operand i, or None if it is absent."""
        return self.operands[i] if i < len(self.operands) else None

    def needs(self, i: int) -> bool:
        """True if operand i is there and its cotangent is read."""
        return i < len(self.needed) and self.needed[i]

    @property
    def z(self) -> Tensor:
        """The first result of the node."""
        return self.results[0]

    @property
    def g(self) -> Tensor:
        """The cotangent of the first result."""
        return self.cotangent(0)

    def cotangent(self, i: int) -> Tensor:
        """The cotangent of result i, zeros included."""
        found = self.cotangents[i]
        return found if found is not None else zeros_like(self.results[i])

    @property
    def site(self) -> Site:
        """The place to name in errors."""
        return Site(self.node.name)

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front."""
        return axis_of(axis, rank, self.site)

    def axes(self, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
        """`axes` counted from the front, sorted; all axes for None."""
        return axes_of(axes, rank, self.site)


Rule: TypeAlias = "Callable[[Step], Cotangents | None]"
"""A rule; it gives None for a node that is to be differentiated as its lowering."""


def zeros_like(x: Tensor) -> Tensor:
    """Zeros with the shape and dtype of `x`."""
    return x.graph.one("full", shape=x.shape, value=0.0, dtype=x.dtype)


def masked(condition: Tensor, g: Tensor) -> Tensor:
    """`g` where the condition holds, else 0."""
    return condition.where(g, 0.0)


def summed_to(g: Tensor, shape: Shape) -> Tensor:
    """`g` summed over the axes along which an operand of `shape` was broadcast, right-aligned, to the shape of `g`."""
    extra = g.rank - len(shape)
    wide = [k for k, size in enumerate(shape) if size == ONE and g.shape[extra + k] != ONE]
    axes = (*range(extra), *(extra + k for k in wide))
    out = g.sum(axes) if axes else g
    return in_shape(out, shape)


def in_shape(x: Tensor, shape: Shape) -> Tensor:
    """`x` reshaped to `shape`, itself if it has that shape."""
    return x if x.shape == shape else x.reshape(shape)


def padded(x: Tensor, pads: Sequence[tuple[Expr, Expr]]) -> Tensor:
    """`x` with zeros around it, or cropped where a width is negative. Zeros that were just put around it and are cropped again are
    never made: a window may reach far beyond the image that it reads."""
    if all(lo == ZERO and hi == ZERO for lo, hi in pads):
        return x
    at = x.graph._producer.get(x.name)
    before = x.graph._nodes[at] if at is not None else None
    if before is not None and before.op == "pad":
        given: Pad = attributes(OPS["pad"], before)
        if given.mode == "constant" and given.value == 0 and all(is_at_most(ZERO, w) for pair in given.pads for w in pair):
            joined = [(a + lo, b + hi) for (a, b), (lo, hi) in zip(given.pads, pads, strict=True)]
            return padded(Tensor(x.graph, before.inputs[0]), joined)
    return x.pad(pads)


def spread(y: Tensor, shape: Shape, axes: Sequence[int]) -> Tensor:
    """A reduced value, with or without the reduced axes as axes of size 1, repeated to the shape before the reduction."""
    kept = [k for k in range(len(shape)) if k not in axes]
    if y.rank == len(shape):
        return y.expand(shape)
    return y.expand(shape, dims=kept)


def count_of(x: Tensor, axes: Sequence[int]) -> Expr:
    """Number of elements along `axes`."""
    return product(x.shape[a] for a in axes)


def number_of(size: Expr, like: Tensor) -> Tensor | float:
    """A size as a number that multiplies or divides `like`."""
    known = size.as_int()
    return float(known) if known is not None else like.graph.one("size", value=size).cast(like.dtype)
