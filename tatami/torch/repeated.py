"""The loop of a frontend graph as a function of Python: what one iteration makes of its number, its state and the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr
from tatami.frontend.graph import Graph
from tatami.frontend.graph_tensor import Tensor

Step: TypeAlias = Callable[[Graph, Tensor, list[Tensor], list[Tensor]], Sequence[Tensor]]
"""In the body's graph: the iteration's number, the carried values and the others -> the next carried values, then what is
kept of every iteration."""


def repeated(
    graph: Graph, name: str, count: IntoExpr, state: Sequence[Tensor], others: Sequence[Tensor], step: Step
) -> list[Tensor]:
    """The carried values after `count` iterations, then what was kept, stacked on a new first axis."""
    return _loop(graph, name, count, state, others, step, None)


def repeated_until(
    graph: Graph, name: str, most: IntoExpr, state: Sequence[Tensor], others: Sequence[Tensor], step: Step
) -> list[Tensor]:
    """The same after the iteration that is the last, or after `most`. The last value that `step` makes is no carried one: True
    if another iteration follows."""
    return _loop(graph, name, most, state, others, step, -1)


def _loop(
    graph: Graph, name: str, count: IntoExpr, state: Sequence[Tensor], others: Sequence[Tensor], step: Step, more: int | None
) -> list[Tensor]:
    """`more`: which of the step's values says whether another iteration follows; None: none does."""
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
