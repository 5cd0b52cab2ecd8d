"""Conditions on the sizes of a graph, node by node: every operation states them here.

    pad [(0, -4)] of x[N]        N >= 4
    max_pool 3 of x[N, C, L]     L >= 3
    slice 2:M of x[N]            2 <= M <= N
    topk 5 of x[N]               N >= 5

In addition no size is negative and no value has more elements than 64 bits count. A condition between numbers is checked when
the node is made, any other joins the signature and is checked when sizes are bound: for every target before memory is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tatami.core.algebra.order import greatest, is_always_less, is_at_most
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import ONE, ZERO, Expr, Shape, expr
from tatami.core.signature import Equation
from tatami.core.sizes.conditions import Claim, broken_numbers, conditions, count_claims, cropped, shape_claims
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import attributes
from tatami.frontend.operations.contraction import Conv, conv_padding
from tatami.frontend.operations.divisors import nonzero_divisors
from tatami.frontend.operations.indexing import Gather, Scatter, TopK
from tatami.frontend.operations.movement import Pad, Slice
from tatami.frontend.operations.reduction import Pool
from tatami.frontend.operations.trees import TreeEnsemble
from tatami.frontend.operations.windows import Fold, Unfold, filled
from tatami.frontend.ops import OPS

Types = Sequence[TensorType | None]


def with_conditions(graph: Graph) -> Graph:
    """The graph with the equations that its sizes need in the signature, the last step of making a graph. Raises E1304 for
    numbers of elements that 64 bits do not count."""
    counts = _counts(graph)
    if faults := broken_numbers(counts):
        raise TatamiError(*faults)
    needed = _conditions(graph, counts)
    if not needed:
        return graph
    signature = msgspec.structs.replace(graph.signature, assumptions=(*graph.signature.assumptions, *needed))
    return msgspec.structs.replace(graph, signature=signature)


def graph_conditions(graph: Graph) -> tuple[Equation, ...]:
    """The equations that the signature of a graph lacks."""
    return _conditions(graph, _counts(graph))


def _conditions(graph: Graph, counts: Sequence[Claim]) -> tuple[Equation, ...]:
    nodes, tensors = graph.graph, graph.tensors
    inputs, known = graph.signature.inputs, graph.signature.assumptions
    claims: list[Claim] = []
    for node in nodes:
        results = [tensors[name] for name in node.outputs if name in tensors]
        claims += node_claims(node, [tensors.get(name) for name in node.inputs], results)
    claims += counts
    bound = {size for port in inputs for size in port.shape}
    claims = [c for c in claims if not (c.small == ZERO and c.large in bound)]
    divisors = tuple(e for e in nonzero_divisors(nodes, tensors) if e not in known)
    return (*divisors, *conditions(claims, (*known, *divisors)))


def _counts(graph: Graph) -> list[Claim]:
    """Claims that no value has too many elements, except values that arguments bound."""
    tensors = graph.tensors
    shapes = [(tensors[name].shape, node.name) for node in graph.graph for name in node.outputs if name in tensors]
    in_memory = [port.shape for port in graph.signature.inputs]
    in_memory += [t.shape for node in graph.graph for t in _found(node, tensors)]
    return count_claims(shapes, in_memory)


def _found(node: Node, tensors: Mapping[str, TensorType]) -> list[TensorType]:
    """Types of results whose sizes the node finds: they lie in memory before anything has their shape."""
    if node.op not in _FINDING and not node.attrs.get("new"):
        return []
    return [tensors[name] for name in node.outputs if name in tensors]


_FINDING = frozenset({"nonzero", "unique", "compress", "non_max_suppression"})


def node_claims(node: Node, operands: Types, results: Sequence[TensorType], at: str = "") -> list[Claim]:
    """Conditions on the sizes of one node. `at`: its name in messages; empty: its own."""
    at = at or node.name
    own = _CLAIMS.get(node.op)
    present = [t for t in operands if t is not None]
    out = [claim for t in results for claim in shape_claims(t.shape, at, [t.shape for t in present])]
    if own is not None:
        out = [*(Claim(small, large, at) for small, large in own(attributes(OPS[node.op], node), present)), *out]
    return out


Pairs = Iterator[tuple[Expr, Expr]]
"""(smaller, larger): pairs of sizes, the first at most the second."""


def _span(kernel: int, dilation: int) -> int:
    """Number of elements from a window's first to its last."""
    return (kernel - 1) * dilation + 1


def _windows(spatial: Shape, kernel: Sequence[int], attrs: Pool | Conv | Unfold | Fold, *, is_partial: bool = False) -> Pairs:
    """Conditions that a window is not longer than its line and the padding; a partial window begins inside."""
    n = len(kernel)
    padding = conv_padding(getattr(attrs, "padding", ()), n)
    steps = zip(spatial, kernel, filled(attrs.stride, n), filled(attrs.dilation, n), padding, strict=True)
    for size, k, stride, dilation, (lo, hi) in steps:
        spare = stride - 1 if is_partial else 0
        yield expr(_span(k, dilation)), size + lo + hi + spare
        yield cropped(lo, hi), size


def _pool(attrs: Pool, types: Sequence[TensorType]) -> Pairs:
    shape = types[0].shape
    return _windows(shape[len(shape) - len(attrs.kernel) :], attrs.kernel, attrs, is_partial=attrs.ceil_mode)


def _conv(attrs: Conv, types: Sequence[TensorType]) -> Pairs:
    x, w = types[0].shape, types[1].shape
    return _windows(x[len(x) - len(w) + 2 :], [s.as_int() or 0 for s in w[2:]], attrs)


def _unfold(attrs: Unfold, types: Sequence[TensorType]) -> Pairs:
    shape = types[0].shape
    return _windows(shape[len(shape) - len(attrs.kernel) :], attrs.kernel, attrs)


def _fold(attrs: Fold, types: Sequence[TensorType]) -> Pairs:
    return _windows(attrs.size[len(attrs.size) - len(attrs.kernel) :], attrs.kernel, attrs)


def _pad(attrs: Pad, types: Sequence[TensorType]) -> Pairs:
    for size, (lo, hi) in zip(types[0].shape, attrs.pads, strict=True):
        yield cropped(lo, hi), size
        if attrs.mode != "constant" and not (is_at_most(lo, ZERO) and is_at_most(hi, ZERO)):
            yield ONE, size - cropped(lo, hi)  # a border repeats an element that is there


def _slice(attrs: Slice, types: Sequence[TensorType]) -> Pairs:
    for size, lo, hi in zip(types[0].shape, attrs.starts, attrs.stops, strict=True):
        yield ZERO, lo
        yield lo, hi
        yield hi, size if is_always_less(lo, hi) else greatest(lo, size)


def _elements(attrs: Gather | Scatter, types: Sequence[TensorType]) -> Pairs:
    """Conditions that the index is not longer than the data, except along the axis that it chooses from."""
    data, index = types[0].shape, types[1].shape
    for axis, (count, size) in enumerate(zip(index, data, strict=True)):
        if axis != attrs.axis % len(data):
            yield count, size


def _topk(attrs: TopK, types: Sequence[TensorType]) -> Pairs:
    shape = types[0].shape
    yield ZERO, expr(attrs.k)
    yield expr(attrs.k), shape[attrs.axis % len(shape)]


def _trees(attrs: TreeEnsemble, types: Sequence[TensorType]) -> Pairs:
    yield expr(attrs.features), types[0].shape[1]


_CLAIMS: Mapping[str, Callable[[Any, Sequence[TensorType]], Pairs]] = {
    "conv": _conv,
    "max_pool": _pool,
    "avg_pool": _pool,
    "lp_pool": _pool,
    "unfold": _unfold,
    "fold": _fold,
    "pad": _pad,
    "slice": _slice,
    "gather": _elements,
    "scatter": _elements,
    "topk": _topk,
    "tree_ensemble": _trees,
}
