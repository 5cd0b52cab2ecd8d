"""A product that is summed into a contraction or a dot product, and that a call reads too: its group comes before the call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor


def scaled(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    a = (x @ w) * 0.1
    return a, a.sum(1, keepdims=True).expand((4, 4)) * 0.1


def outer(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    a = x.reshape((4, 1, 4)).expand((4, 4, 4)) * w.reshape((1, 4, 4)).expand((4, 4, 4))
    return a, a.sum(2) * 2.0


def twice(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    a = (x @ w) * 0.1
    return a, a.sum(1) + a.sum(0)


@pytest.mark.parametrize("made", [scaled, outer, twice])
@pytest.mark.parametrize("call", [lambda a: a.nonzero(), lambda a: a.topk(2)[0]], ids=["a step", "a routine"])
def test_the_product_is_there_before_the_call(
    made: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], call: Callable[[Tensor], Tensor]
) -> None:
    g = Graph("g")
    a, total = made(*(g.input(name, (4, 4), DType.fp32) for name in "xw"))
    g.output("called", call(a))
    g.output("total", total)
    rng = np.random.default_rng(2)
    arrays = {name: rng.standard_normal((4, 4)).astype(np.float32) for name in "xw"}
    got, want = (tt.compile(g, target=target)(arrays) for target in ("cpu", "reference"))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)
