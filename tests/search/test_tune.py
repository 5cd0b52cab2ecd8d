"""The search behind `tt.compile(tune=…)`, torch.compile and the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.cli.tune_command import read_budget, read_clusters
from tatami.core.diagnostic import TatamiError
from tatami.decisions import load_decisions
from tatami.ledger.database import open_ledger
from tests.search.tuned_models import two_layers
from tests.shares import slow


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 2)


def test_a_tuned_program_is_right() -> None:
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32) / 8
    tuned, plain = tt.compile(two_layers(), tune=60), tt.compile(two_layers())
    np.testing.assert_allclose(tuned(x=x)["y"], plain(x=x)["y"], rtol=1e-4, atol=1e-6)
    with pytest.raises(TatamiError, match="InvalidAttribute"):
        tt.compile(two_layers(), tune=60, target="sm80")


def test_each_cluster_of_sizes_is_measured_at_its_usual_ones(tmp_path: Path) -> None:
    """A cluster's program is searched by itself, and the ledger's rows have the sizes at which it was measured."""
    g = tt.Graph("g")
    g.output("y", (g.input("x", ("M", 32), tt.fp32) @ g.input("w", (32, 32), tt.fp32)).relu())
    f = tt.compile(g, sizes={"M": [(16, 48, 64)]}, tune=0.5, threads=1)
    with open_ledger(tmp_path / "ledger.sqlite") as connection:
        assert {row[0] for row in connection.execute("SELECT sizes FROM programs")} >= {"M=48"}
        assert len(connection.execute("SELECT DISTINCT sizes FROM programs").fetchall()) == 2
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 32)).astype(np.float32)
    for m in (16, 50, 64, 65):
        x = rng.standard_normal((m, 32)).astype(np.float32)
        np.testing.assert_allclose(f(x=x, w=w)["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seconds", [0, -1, True, "60", float("nan"), float("inf")])
def test_tune_is_a_number_of_seconds(seconds: object) -> None:
    with pytest.raises(TatamiError, match="not a number of seconds"):
        tt.compile(two_layers(), tune=seconds)


def test_the_command_writes_decisions_that_run_obeys(tmp_path: Path) -> None:
    out = tmp_path / "tuned.json"
    model = "examples/digits/digits.onnx"
    for compiled in (True, False):
        done = CliRunner().invoke(main, ["tune", model, "-D", "N=16", "--budget", "10m", "-o", str(out)])
        assert done.exit_code == 0, done.output
        assert (" 0 candidates compiled" in done.output) != compiled
    load_decisions(out)
    assert CliRunner().invoke(main, ["run", model, "-D", "N=16", "--decisions", str(out), "--check"]).exit_code == 0
    listed = CliRunner().invoke(main, ["ledger", "list"]).output.splitlines()
    assert len(listed) > 1 and listed[0].split()[0] == "region"
    assert "decision" in CliRunner().invoke(main, ["ledger", "export", "--searches"]).output.splitlines()[0]
    assert CliRunner().invoke(main, ["ledger", "prune"]).output.startswith("0 rows")


def test_a_document_that_cannot_be_written_is_known_before_the_search(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.json").mkdir()
    for out in (tmp_path / "file" / "tuned.json", tmp_path / "folder.json"):
        done = CliRunner().invoke(main, ["tune", "examples/digits/digits.onnx", "-o", str(out)])
        assert done.exit_code == 1 and "FileUnwritable" in done.output
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("7", 7)])
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert read_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "0s", "-1m", "10 days", "1e9h", "٣m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(TatamiError, match="InvalidAttribute"):
        read_budget(text)


@pytest.mark.parametrize(
    "texts", [["B"], ["B="], ["B=1,"], ["=1"], ["B=-1"], ["B=1.5"], ["B=1,2", "L=3"], ["B=1", "B=2"], ["N=1"]]
)
def test_what_is_no_list_of_sizes_is_refused(texts: list[str]) -> None:
    with pytest.raises(TatamiError, match="InvalidAttribute"):
        read_clusters(texts, {"N": 16})


@slow
def test_each_tuple_of_sizes_has_its_winners_behind_its_guard(tmp_path: Path) -> None:
    out = tmp_path / "tuned.json"
    model = "examples/digits/digits.onnx"
    done = CliRunner().invoke(main, ["tune", model, "--sizes", "N=4,64", "--budget", "20m", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "at N=4\n" in done.output and "at N=64\n" in done.output
    assert not load_decisions(out).partitions
    for n in (4, 64, 7):
        assert CliRunner().invoke(main, ["run", model, "-D", f"N={n}", "--decisions", str(out), "--check"]).exit_code == 0
    refused = CliRunner().invoke(main, ["tune", model, "--sizes", "M=4,64", "-o", str(out)])
    assert refused.exit_code != 0 and "E1301" in refused.output


def test_a_machine_without_plans_to_measure_has_no_resource() -> None:
    done = CliRunner().invoke(main, ["ledger", "machine", "--target", "cpu:avx2"])
    assert done.exit_code == 0 and done.output.startswith('{"tatami-')
    refused = CliRunner().invoke(main, ["ledger", "machine", "--target", "h100"])
    assert refused.exit_code == 1 and "plans of h100 are not measured" in refused.output


def test_a_ledger_that_is_not_there_is_told_with_advice_for_each_command(tmp_path: Path) -> None:
    explore = [
        "explore",
        "examples/digits/digits.onnx",
        "--tune",
        str(tmp_path / "none.sqlite"),
        "-o",
        str(tmp_path / "p.html"),
    ]
    refused = CliRunner().invoke(main, explore)
    assert refused.exit_code == 1 and "FileUnreadable" in refused.output and "--ledger" not in refused.output
