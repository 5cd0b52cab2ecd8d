"""The loop of a frontend graph with a Python function as its body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor

Step: TypeAlias = Callable[[Graph, Tensor, list[Tensor], list[Tensor]], Sequence[Tensor]]
"""Body of a loop: (graph of the body, iteration's number, carried values, other values) -> the next carried values, then
values that are kept of every iteration."""


def repeated(
    graph: Graph, name: str, count: IntoExpr, state: Sequence[Tensor], others: Sequence[Tensor], step: Step
) -> list[Tensor]:
    """The carried values after `count` iterations, then the kept values stacked on a new first axis."""
    return _loop(graph, name, count, state, others, step, None)


def repeated_until(
    graph: Graph, name: str, most: IntoExpr, state: Sequence[Tensor], others: Sequence[Tensor], step: Step
) -> list[Tensor]:
    """The results of `repeated` after at most `most` iterations: the last value of `step` is not carried; it is True if
    another iteration follows."""
    return _loop(graph, name, most, state, others, step, -1)


def _loop(
    graph: Graph, name: str, count: IntoExpr, state: Sequence[Tensor], others: Sequence[Tensor], step: Step, more: int | None
) -> list[Tensor]:
    """The results of a loop. `more`: position of the value that is True if another iteration follows, or None."""
    body = graph.subgraph(f"{name}_{len(graph.nodes)}")
    k, going = body.input("k", (), DType.i64), body.input("going", (), DType.bool)
    carried = [body.input(f"state{i}", t.shape, t.dtype) for i, t in enumerate(state)]
    given = [body.input(f"given{i}", t.shape, t.dtype) for i, t in enumerate(others)]
    made = list(step(body, k, carried, given))
    body.output("more", going if more is None else made.pop(more))
    for i, value in enumerate(made):
        body.output(f"next{i}", value)
    found = graph.loop(body, state, others, trip=count)
    return [found] if isinstance(found, Tensor) else list(found)
