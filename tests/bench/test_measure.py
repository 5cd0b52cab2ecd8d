"""Kernels are timed one by one, next to their estimates."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from tatami.api import prepare
from tatami.bench.measure import measure
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.signature import symbols
from tatami.frontend.graph import Graph
from tatami.ledger.database import open_ledger
from tatami.ledger.exchange import csv_text
from tatami.plan.choose import estimate_at
from tatami.plan.decide import read_plan
from tatami.report.timings import estimate_sizes

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


def test_results_whose_sizes_values_decide_are_called() -> None:
    g = Graph()
    g.output("where", (g.input("x", (64, 32), DType.fp32) * 2.0).nonzero())
    compilation = prepare(g)
    guesses = dict.fromkeys(symbols(compilation.stages["frontend"].main.signature), 128)
    assert guesses  # the number of places, which 2048 values decide
    found = measure(compilation, {"x": X}, guesses, threads=1, seconds=0.01)
    assert found.timings and found.runs >= 5


def test_only_the_cpu_is_measured() -> None:
    with pytest.raises(TatamiError, match="E1504"):
        measure(prepare(graph(), target="reference"), {"x": X}, {}, threads=1)


def test_the_command_prints_a_table() -> None:
    done = CliRunner().invoke(main, ["bench", "examples/digits/digits.onnx", "-D", "N=3", "--seconds", "0.05"])
    assert done.exit_code == 0, done.output
    assert "of roofline" in done.output and "whole program" in done.output and "peaks of this machine" in done.output


def test_the_command_draws_the_kernels_under_the_roofline(tmp_path: Path) -> None:
    picture = tmp_path / "roofline.svg"
    command = ["bench", "examples/digits/digits.onnx", "-D", "N=3", "--seconds", "0.01", "--svg", str(picture)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    text = picture.read_text()
    ElementTree.fromstring(text)
    drawn = text.count('<circle class="kernel"')
    assert drawn > 0 and all(word in text for word in ("GFLOP/s", "operations per byte", "GB/s"))


def test_every_bench_appends_to_the_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    for _ in range(2):
        command = ["bench", "examples/digits/digits.onnx", "-D", "N=3", "--seconds", "0.01", "--ledger", str(ledger)]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    with open_ledger(ledger) as connection:
        lines = list(csv.DictReader(csv_text(connection, "kernels").splitlines()))
    kernels = [r["kernel"] for r in lines]
    assert kernels and kernels[: len(kernels) // 2] == kernels[len(kernels) // 2 :]
    for row in lines:
        assert all(row[c] for c in ("flops", "bytes", "occupancy", "estimate_s", "actual_s", "plan")), row
    compilation = prepare("examples/digits/digits.onnx")
    plans = [c.plan for r in compilation.stages["plan"].main.regions for c in r.choices]
    assert all(read_plan(json.loads(row["plan"]), "ledger") in plans for row in lines)


def test_a_gemm_counts_its_flops_and_bytes() -> None:
    g = Graph()
    a, b = g.input("a", ("M", "K"), DType.fp16), g.input("b", ("K", "N"), DType.fp16)
    g.output("y", a @ b)
    x, y = np.ones((100, 75), np.float16), np.ones((75, 130), np.float16)
    found = measure(prepare(g), {"a": x, "b": y}, {"M": 100, "K": 75, "N": 130}, threads=1, seconds=0.01)
    assert sum(t.flops or 0 for t in found.timings) == 2 * 100 * 75 * 130
    assert sum(t.bytes or 0 for t in found.timings) == 2 * (100 * 75 + 75 * 130 + 100 * 130)


def bench(*options: str) -> tuple[str, list[dict[str, str]]]:
    """The output of the command, and the rows of its table by column."""
    done = CliRunner().invoke(main, ["bench", *options, "--seconds", "0.01", "--threads", "1"])
    assert done.exit_code == 0, done.output
    head, *rows = [re.split(r"\s{2,}", line.strip()) for line in done.output.splitlines()]
    return done.output, [dict(zip(head, row)) for row in rows if len(row) == len(head)]


def test_sizes_come_from_given_inputs_then_from_the_options(tmp_path: Path) -> None:
    model = tmp_path / "m.harp"
    model.write_text("graph<N=1, C=1, H=1, W=1> main(x: f32[N, C, H, W]) -> f32[N, C, H, W] {\n    return relu(x) * 2.0\n}\n")
    output, _ = bench(str(model), "--input", "x=shape:2x3x64x64")
    assert all(size in output for size in ("N=2", "C=3", "H=64", "W=64"))
    output, _ = bench(str(model), "-D", "C=5", "-D", "H=4", "-D", "W=6")
    assert all(size in output for size in ("N=1", "C=5", "H=4", "W=6"))
    clash = CliRunner().invoke(main, ["bench", str(model), "--input", "x=shape:2x3x64x64", "-D", "N=5"])
    assert clash.exit_code == 1 and "E1304" in clash.output


def test_estimates_are_those_of_the_sizes_that_run() -> None:
    """The hint of 128 rows said 100 times what the memory allows where 2 ran."""
    digits = "examples/digits/digits.onnx"
    rows = {n: bench(digits, "-D", f"N={n}")[1] for n in (1, 4096)}
    assert all(r["of roofline"] for found in rows.values() for r in found if r["estimate ms"])
    few, many = (sum(float(r["estimate ms"]) for r in rows[n]) for n in (1, 4096))
    assert many > 3 * few, rows


def test_the_plan_chosen_for_some_sizes_has_the_same_estimate_there() -> None:
    compilation = prepare(graph())
    facts = {f.region: f for f in compilation.stages["poly_core"].main.regions}
    plans = {r.region: r.choices[-1] for r in compilation.stages["plan"].main.regions}
    for region in compilation.stages["region"].main.body:
        chosen = plans[region.name]
        again = estimate_at(region, facts[region.name], chosen, compilation.target, estimate_sizes(compilation))
        assert again == {k: v for k, v in chosen.estimate.items() if not k.startswith("at.")}
