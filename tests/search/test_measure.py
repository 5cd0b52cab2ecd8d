"""Kernels are timed one by one, and the estimate stands beside."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from tatami.api import prepare
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.search.measure import estimate_sizes, measure

X = np.ones((64, 32), np.float32)


def graph() -> Graph:
    g = Graph()
    x = g.input("x", ("B", 32), DType.fp32)
    w = g.constant(np.ones((32, 32), np.float32), "w", role="param")
    g.output("y", (x @ w).softmax(1))
    return g


def test_every_kernel_has_a_time_and_an_estimate() -> None:
    compilation = prepare(graph())
    found = measure(compilation, {"x": X}, {"B": 64}, threads=1, seconds=0.05)
    assert found.timings and all(0 < t.seconds < 1 and t.estimate and t.bound for t in found.timings)
    assert 0 < found.whole < 1 and found.runs >= 5
    assert estimate_sizes(compilation).keys() == {"B"}


def test_only_the_cpu_is_measured() -> None:
    with pytest.raises(TatamiError, match="E1504"):
        measure(prepare(graph(), target="reference"), {"x": X}, {}, threads=1)


def test_the_command_prints_a_table() -> None:
    done = CliRunner().invoke(main, ["bench", "examples/digits/digits.onnx", "-D", "N=3", "--seconds", "0.05"])
    assert done.exit_code == 0, done.output
    assert "of roofline" in done.output and "whole program" in done.output
