"""Measured times in a page and in a trace."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tatami.cli import main
from tatami.explorer.times import trace
from tatami.prepare import prepare
from tatami.report.timings import Measurement, Timing
from tests.explorer.pages import ATTENTION, DIGITS


def timing(kernel: str, seconds: float) -> Timing:
    return Timing(kernel, "rows", (f"node {kernel}",), seconds, None, None, None, None, 1.0, "")


def test_a_trace_lays_waves_out_one_after_another() -> None:
    execution = prepare(DIGITS, target="cpu:avx2").stages["execution"]
    found = Measurement((timing("r1", 2e-6), timing("r0", 1e-6)), 3e-6, 5)
    events = [e for e in trace(execution, found, "digits")["traceEvents"] if e["ph"] == "X"]  # type: ignore[attr-defined]
    kernels = [(e["name"], round(e["ts"], 6), round(e["dur"], 6)) for e in events if e["tid"]]
    assert kernels == [("r0", 0.0, 1.0), ("r1", 1.0, 2.0)]
    waves = [(e["name"], round(e["ts"], 6), round(e["dur"], 6)) for e in events if not e["tid"]]
    assert waves == [("wave 0", 0.0, 1.0), ("wave 1", 1.0, 2.0)]


def test_bench_writes_a_trace(tmp_path: Path) -> None:
    out, ledger = tmp_path / "trace.json", tmp_path / "ledger.sqlite"
    arguments = ["bench", str(ATTENTION), "--seconds", "0", "--trace", str(out), "--ledger", str(ledger)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    names = {e["name"] for e in found["traceEvents"] if e["ph"] == "X"}
    assert {"wave 0", "r0", "r1"} <= names
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in found["traceEvents"] if e["ph"] == "X")


def test_a_trace_of_an_emulated_gpu_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    result = CliRunner().invoke(main, ["bench", str(ATTENTION), "--target", "emulated-sm80", "--trace", str(out)])
    assert result.exit_code == 1 and "--trace" in result.output and not out.exists()
