"""Sizes that only an assumption decides: `assume("N", "3*M")` gives M for each N."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph


def thirds() -> Graph:
    g = Graph("g")
    x = g.input("x", ("N", 4), DType.fp32)
    g.assume("N", "3*M")
    g.output("y", x.reshape("M", 3, 4).sum(1))
    return g


@pytest.mark.parametrize("target", ["cpu", "reference", "emulated-sm80"])
def test_an_assumption_decides_a_size(target: str) -> None:
    f = tt.compile(thirds(), target=target)
    for m in (2, 1, 0):
        x = np.arange(12 * m, dtype=np.float32).reshape(3 * m, 4)
        assert np.array_equal(f(x=x)["y"], x.reshape(m, 3, 4).sum(1))
    with pytest.raises(TatamiError, match="E1304"):
        f(x=np.zeros((7, 4), np.float32))


def test_an_assumption_decides_a_size_in_the_language() -> None:
    text = "graph<N=3, M=1> main(x: f32[N]) -> (y: f32[M]) { assume(N, 3*M)\n return x.reshape([M, 3]).sum(1) }"
    f = tt.compile(tt.parse(text), target="cpu")
    assert f(x=np.arange(6, dtype=np.float32))["y"].tolist() == [3.0, 12.0]


def test_a_chain_of_assumptions_decides_sizes() -> None:
    g = Graph("g")
    x = g.input("x", ("N",), DType.fp32)
    g.assume("N", "2*M")
    g.assume("M", "K + 1")
    g.output("y", x.reshape("M", 2)[:1].sum(0) + g.iota(("K",)).cast(DType.fp32).sum())
    assert tt.compile(g, target="reference")(x=np.ones(8, np.float32))["y"].tolist() == [4.0, 4.0]
