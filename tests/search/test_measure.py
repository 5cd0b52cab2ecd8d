"""Kernels are timed one by one, and the estimate stands beside."""

from __future__ import annotations

import csv
from pathlib import Path

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


def test_every_bench_appends_to_the_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.csv"
    for _ in range(2):
        command = ["bench", "examples/digits/digits.onnx", "-D", "N=3", "--seconds", "0.01", "--ledger", str(ledger)]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    lines = list(csv.DictReader(ledger.read_text().splitlines()))
    kernels = [r["kernel"] for r in lines]
    assert kernels and kernels[: len(kernels) // 2] == kernels[len(kernels) // 2 :]
    for row in lines:
        assert all(row[c] for c in ("flops", "bytes", "occupancy", "estimate_s", "actual_s", "plan")), row


def test_a_gemm_counts_its_flops_and_bytes() -> None:
    g = Graph()
    a, b = g.input("a", ("M", "K"), DType.fp16), g.input("b", ("K", "N"), DType.fp16)
    g.output("y", a @ b)
    x, y = np.ones((100, 75), np.float16), np.ones((75, 130), np.float16)
    found = measure(prepare(g), {"a": x, "b": y}, {"M": 100, "K": 75, "N": 130}, threads=1, seconds=0.01)
    assert sum(t.flops or 0 for t in found.timings) == 2 * 100 * 75 * 130
    assert sum(t.bytes or 0 for t in found.timings) == 2 * (100 * 75 + 75 * 130 + 100 * 130)
