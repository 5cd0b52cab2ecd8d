"""Compositions of elementwise operations around one reduction need no machinery below tiny: they are one kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tatami as tt
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor

COMPOSITIONS: dict[str, Callable[[Graph, Tensor], Tensor]] = {
    "softmax of masked scores": lambda g, x: g.where(g.input("mask", ("B", 64), tt.bool), x * 0.125, float("-inf")).softmax(),
    "layer norm, then gelu": lambda g, x: x.layer_norm(g.input("s", (64,), tt.fp32), g.input("b", (64,), tt.fp32)).gelu(),
    "rms norm, then silu": lambda g, x: x.rms_norm(g.input("s", (64,), tt.fp32)).silu() * x,
    "log of a softmax": lambda g, x: (x * 2.0 + 1.0).log_softmax(),
    "variance": lambda g, x: x.tanh().variance(1),
    "logsumexp": lambda g, x: x.abs().logsumexp(1),
    "a chain": lambda g, x: ((x - 1.0).clamp(0, 6) / 6.0).exp() * x.sigmoid(),
    "views": lambda g, x: x.transpose()[::-1, 1:].unsqueeze(0) * 2.0,
    "dropout": lambda g, x: x.relu().dropout(g.input("key", (), tt.u64), 0.1) + x,
    "one hot": lambda g, x: g.input("i", ("B",), tt.i64).one_hot(64) - x,
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_composition_is_one_kernel(name: str) -> None:
    g = Graph("g")
    g.output("y", COMPOSITIONS[name](g, g.input("x", ("B", 64), tt.fp32)))
    f = tt.compile(g)
    assert len(f.stages["execution"].value.main.instructions) == 1
