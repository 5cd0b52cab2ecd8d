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
    body = graph.subgraph(f"{name}_{len(graph.nodes)}")
    k, going = body.input("k", (), DType.i64), body.input("going", (), DType.bool)
    carried = [body.input(f"state{i}", t.shape, t.dtype) for i, t in enumerate(state)]
    given = [body.input(f"given{i}", t.shape, t.dtype) for i, t in enumerate(others)]
    body.output("more", going)
    for i, value in enumerate(step(body, k, carried, given)):
        body.output(f"next{i}", value)
    found = graph.loop(body, state, others, trip=count)
    return [found] if isinstance(found, Tensor) else list(found)
