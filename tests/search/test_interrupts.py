"""Ctrl-C in each phase of a search: what was found is kept, and the same search goes on."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tatami.cli import main
from tatami.decisions import Decisions, load_decisions
from tatami.ledger.database import open_ledger
from tatami.search.measuring.measurer import Measurer
from tatami.search.measuring.messages import Open
from tatami.search.results import Progress
from tests.search.tuned_models import planted, session, timings
from tests.shares import slow

PHASES = {
    "profile": "profile",
    "step": "n.* together",
    "adoption": "the whole program with",
    "Region": r"r\d+: .*right",
    "test of a Region": r"r\d+: .*faster",
    "whole program": "whole program",
}
"""Phase -> regular expression of what the search says then."""

pytestmark = pytest.mark.runs_on("cpu:avx2")


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 2)


class Interrupted:
    """A function for `tell` that gets Ctrl-C in a phase of the search."""

    def __init__(self, phase: str) -> None:
        self.text = re.compile(PHASES[phase])

    def __call__(self, progress: Progress) -> None:
        if self.text.match(progress.what):
            raise KeyboardInterrupt


@pytest.mark.parametrize("phase", [p if p in ("Region", "step") else pytest.param(p, marks=slow) for p in PHASES])
def test_a_search_that_is_interrupted_keeps_what_was_found_and_goes_on(tmp_path: Path, phase: str) -> None:
    command = planted(tmp_path, {})
    cut = session(tmp_path, command, tell=Interrupted(phase))
    assert cut.is_interrupted and not cut.decisions.plans
    assert bool(cut.decisions.partitions) == (phase in ("Region", "test of a Region", "whole program"))
    assert (
        cut.journal is not None and cut.journal.end is not None
    )  # its report has what it adopted, and says that it was cut off
    assert (cut.journal.end.changes, cut.journal.end.whole, cut.journal.end.left) == (cut.changes, cut.whole, -1)
    before = timings(tmp_path)
    found = session(tmp_path, command)
    assert found.journal is not None and found.journal.end is not None and found.journal.end.left == 0
    assert not found.is_interrupted and not found.left
    added = timings(tmp_path)[len(before) :]
    kept = [line for line in before if not line.startswith(("own ", "tuned "))]
    assert len(set(kept) & set(added)) <= 2  # the round that the interrupt cut off is timed again
    assert session(tmp_path, ("no-such-command",)).decisions == found.decisions


def test_an_interrupt_between_the_tuples_of_sizes_keeps_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("TATAMI_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setattr("tatami.search.clusters.with_decisions", interrupted)
    out = tmp_path / "tuned.json"
    done = CliRunner().invoke(
        main, ["tune", "examples/digits/digits.onnx", "--sizes", "N=16,32", "--budget", "2s", "-o", str(out)]
    )
    assert done.exit_code == 130 and "at N=16" in done.output and "at N=32" not in done.output
    load_decisions(out)


REPLIES = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    names, count = request.get("names", []), request.get("count", 0)
    timed = {"type": "timed", "seconds": {n: [1.0] * count for n in names}}
    print(json.dumps(timed if names else {"type": "done"}), flush=True)
"""
"""A worker whose turns take a second each."""


def test_the_reply_to_a_request_that_was_interrupted_is_not_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Open("", {}, {}, 1, 0, 0)
    with Measurer(opened, command=(sys.executable, "-c", REPLIES)) as measurer:
        assert measurer.add("a", Decisions()).verdict == "right"

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(select, "select", interrupted)
            measurer.turns(["a"], 2, seed=0)
        assert measurer.turns(["a"], 3, seed=0) == {"a": [1.0, 1.0, 1.0]}


def candidates(ledger: Path) -> set[tuple[object, ...]]:
    """The rows of candidates; none while there is no ledger."""
    if not ledger.exists():
        return set()
    with open_ledger(ledger) as connection:
        return set(connection.execute("SELECT * FROM candidates").fetchall())


def tune(folder: Path, budget: str) -> subprocess.Popen[str]:
    arguments = ["tune", "examples/digits/digits.onnx", "-D", "N=16", "--budget", budget, "--ledger", str(folder / "l.sqlite")]
    return subprocess.Popen(
        [sys.executable, "-m", "tatami", *arguments, "-o", str(folder / "tuned.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    )


def test_the_command_writes_decisions_after_an_interrupt_and_goes_on(tmp_path: Path) -> None:
    process = tune(tmp_path, "20m")
    until = time.monotonic() + 120
    while not candidates(tmp_path / "l.sqlite") and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted: the same command goes on" in output and not errors
    load_decisions(tmp_path / "tuned.json")
    before = candidates(tmp_path / "l.sqlite")
    process = tune(tmp_path, "10s")
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0 and not errors
    assert before < candidates(tmp_path / "l.sqlite")
