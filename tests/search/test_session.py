"""A search as a whole: planted faults, what it finds, and that it measures nothing twice, also after it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.decisions import load_decisions
from tatami.ledger.database import open_ledger
from tatami.ledger.exchange import merge
from tests.search.tuned_models import TARGET, planted, session, timings, two_layers
from tests.shares import slow

KINDS = ("cpu_contraction", "cpu_rows", "scalar", "cpu_stream", "cpu_window")
"""Kinds of plans of which candidates of the model are; a step between partitions counts as `partition`."""

pytestmark = pytest.mark.runs_on("cpu:avx2")


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three candidates per Region: each one that hangs or crashes costs a new process."""
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 3)


def verdicts(folder: Path) -> dict[str, set[str]]:
    """Kind of plan -> verdicts of its candidates, from the ledger."""
    out: dict[str, set[str]] = {}
    with open_ledger(folder / "ledger.sqlite") as connection:
        for decision, verdict in connection.execute("SELECT decision, verdict FROM candidates"):
            kind = next((k for k in KINDS if f'"kind":"{k}"' in decision), "partition")
            out.setdefault(kind, set()).add(verdict)
    return out


def test_candidates_without_a_fault_win_by_their_times(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {}))
    assert found.changes or found.dropped  # in the program real clocks decide
    assert not found.faults and not found.left and found.measured
    assert any("faster" in v for v in verdicts(tmp_path).values())


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("wrong", "wrong"),
        pytest.param("hang", "hung", marks=slow),
        ("crash", "crashed"),
        pytest.param("late", "crashed", marks=slow),
        ("noise", "not faster"),
    ],
)
def test_a_planted_fault_is_reported_and_never_wins(tmp_path: Path, fault: str, verdict: str) -> None:
    found = session(tmp_path, planted(tmp_path, {"kind": fault}))  # every candidate's document has the word
    seen = set().union(*verdicts(tmp_path).values())
    assert verdict in seen and "faster" not in seen
    assert not found.decisions.plans and not found.changes and found.whole is None
    if fault == "noise":
        assert not found.faults
        return
    assert {f.verdict for f in found.faults} == {verdict}
    assert any("kernels alone" in f.line for f in found.faults) and any("kernels alone" not in f.line for f in found.faults)
    for f in found.faults:
        is_plan = "kernels alone" not in f.line
        assert bool(load_decisions(Path(f.folder) / "decisions.json").plans) == is_plan
        assert list(Path(f.folder).glob("*_region.json" if is_plan else "*_region-explicit.json"))
        assert verdict in (Path(f.folder) / "fault.txt").read_text()


def test_the_documents_of_a_fault_run_by_themselves(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {"kind": "wrong"}))
    for folder in (Path(f.folder) for f in found.faults):
        f = tt.compile(folder, target=TARGET, decisions=folder / "decisions.json")
        given = {p.tensor: np.ones([n.as_int() or 0 for n in p.shape], np.float32) for p in f.arguments}
        assert all(np.isfinite(a).all() for a in f(given).values())


def test_one_bad_candidate_does_not_stop_the_others(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {'"kind":"cpu_contraction"': "crash"}))
    assert {f.verdict for f in found.faults} == {"crashed"}
    assert any("faster" in v for kind, v in verdicts(tmp_path).items() if kind != "cpu_contraction")


def test_a_second_search_measures_nothing(tmp_path: Path) -> None:
    command = planted(tmp_path, {'"kind":"scalar"': "wrong"})
    first = session(tmp_path, command)
    before = timings(tmp_path)
    second = session(tmp_path, ("no-such-command",))
    assert timings(tmp_path) == before
    assert second.measured == 0 and second.decisions == first.decisions and second.changes == first.changes


def test_after_the_budget_nothing_is_measured(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {}), budget=1e-3)
    assert found.measured == 0 and found.left > 0 and not timings(tmp_path) and not found.decisions.plans


def test_a_program_with_all_winners_that_is_wrong_costs_half_of_them(tmp_path: Path) -> None:
    keys: set[str] = set()
    with (tmp_path / "log").open("w"):
        session(tmp_path, planted(tmp_path, {}), cuts=False)
    with open_ledger(tmp_path / "ledger.sqlite") as connection:
        keys = {key for (key,) in connection.execute("SELECT region FROM searches WHERE winner <> ''")}
        connection.execute("DELETE FROM programs WHERE what LIKE 'tuned:%'")
    last = max(keys).split()[0]
    assert len(keys) == 2
    (tmp_path / "log").unlink()
    found = session(tmp_path, planted(tmp_path, {f',"{last}":': "wrong"}), cuts=False)
    assert [f.verdict for f in found.faults] == ["wrong"] and len(found.decisions.plans) <= 1 and found.dropped
    assert any(line.startswith("tuned ") for line in timings(tmp_path))


def test_winners_of_open_sizes_stand_behind_their_sizes(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {}), "B")
    assert found.changes or found.dropped
    for choices in found.decisions.plans.values():
        assert isinstance(choices, list) and choices[0]["conditions"] and not choices[-1]["conditions"]
    f = tt.compile(two_layers("B"), target=TARGET, decisions=found.decisions)
    g = tt.compile(two_layers("B"), target=TARGET)
    for rows in (32, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32) / 8
        np.testing.assert_allclose(f(x=x)["y"], g(x=x)["y"], rtol=1e-4, atol=1e-6)


def merged_from(folder: Path, other: Path) -> None:
    """Take the rows of another ledger over."""
    folder.mkdir()
    with open_ledger(folder / "ledger.sqlite") as connection:
        assert merge(connection, other / "ledger.sqlite")[1] == 0


def test_a_merged_winner_is_tested_before_it_is_believed(tmp_path: Path) -> None:
    other, own = tmp_path / "other", tmp_path / "own"
    other.mkdir()
    first = session(other, planted(other, {}), cuts=False)
    merged_from(own, other)
    found = session(own, planted(own, {}), cuts=False)
    assert first.journal is not None and found.journal is not None
    assert [(v.key, v.winner) for v in found.journal.visits] == [(v.key, v.winner) for v in first.journal.visits]
    won = [v.winner for v in found.journal.visits if v.winner]
    assert won and found.measured < first.measured
    assert {line.split()[0] for line in timings(own)} - {"own", "tuned"} == set(won)


def test_a_merged_winner_that_is_wrong_here_is_a_fault(tmp_path: Path) -> None:
    other, own = tmp_path / "other", tmp_path / "own"
    other.mkdir()
    session(other, planted(other, {}))
    merged_from(own, other)
    found = session(own, planted(own, {"kind": "wrong"}))
    assert {f.verdict for f in found.faults} == {"wrong"} and not found.decisions.plans and not found.decisions.partitions


@pytest.mark.parametrize("column", ["target", pytest.param("revision", marks=slow)])
def test_rows_of_other_machines_and_versions_are_not_used(tmp_path: Path, column: str) -> None:
    other, own = tmp_path / "other", tmp_path / "own"
    other.mkdir()
    first = session(other, planted(other, {}), cuts=False)
    with open_ledger(other / "ledger.sqlite") as connection:  # another C compiler is another target
        for table in ("candidates", "searches", "programs"):
            connection.execute(f"UPDATE {table} SET {column} = 'x' || {column}")
    merged_from(own, other)
    assert session(own, planted(own, {}), cuts=False).measured == first.measured


KILLED = """
import sys
from pathlib import Path
from tests.search.tuned_models import planted, session
folder = Path(sys.argv[1])
session(folder, planted(folder, {}))
"""


def killed_at_random(folder: Path, count: int, seed: int) -> None:
    """Start a search `count` times and kill it after a random time; then let it end, and check what it left."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], start_new_session=True)
        time.sleep(float(rng.uniform(0.3, 8.0)))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if (folder / "ledger.sqlite").exists():
            with open_ledger(folder / "ledger.sqlite") as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    found = session(folder, planted(folder, {}))
    assert not found.faults and not found.left
    with open_ledger(folder / "ledger.sqlite") as connection:
        kept = connection.execute("SELECT candidate, round FROM candidates WHERE turns > 0").fetchall()
    measured = [(line.split()[0], int(line.split()[2])) for line in timings(folder) if not line.startswith(("own ", "tuned "))]
    assert set(kept) <= set(measured)
    again = len(measured) - len(set(measured))
    assert again <= 8 * count  # one group per kill, which had not reached the ledger


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    killed_at_random(tmp_path, 2, seed=0)


if __name__ == "__main__":  # python -m tests.search.test_session FOLDER 30
    killed_at_random(Path(sys.argv[1]), int(sys.argv[2]), seed=1)
