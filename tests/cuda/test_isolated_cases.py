"""Cases of `make gpu` in processes of their own: what hangs, faults or is cut off costs its own row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import isolated
from benchmarks.gpu.isolated import Isolated

WORKER = """
import json, os, sys, time
lines, faults = open(sys.argv[1], "a"), {3: "sleep", 5: "end", 6: "dead"}
def tell(row):
    print(json.dumps(row), file=lines, flush=True)
for k in range(int(sys.argv[-1]), 9):
    tell({"begin": k, "name": f"case {k}"})
    what = faults.get(k)
    if what == "sleep":
        time.sleep(60)
    if what == "end":
        os._exit(7)
    tell({"k": k, "name": f"case {k}", "ok": what is None, **({"dead": True, "why": "context"} if what else {})})
    if what:
        time.sleep(60)
tell({"end": 9})
"""


def worker(tmp_path: Path) -> tuple[list[str], Path]:
    (tmp_path / "worker.py").write_text(WORKER)
    lines = tmp_path / "lines.jsonl"
    return [sys.executable, str(tmp_path / "worker.py"), str(lines)], lines


def test_a_case_that_hangs_faults_or_ends_costs_its_own_row(tmp_path: Path) -> None:
    command_, lines = worker(tmp_path)
    seen: list[int] = []
    step = Isolated(command_, lines, 1.0, lambda rows: seen.append(len(rows)))
    assert step.run(60.0, dict(os.environ), tmp_path) == "done"
    assert [r["k"] for r in step.rows] == list(range(9)) and seen == list(range(1, 10))
    assert [r["k"] for r in step.rows if not r["ok"]] == [3, 5, 6]
    assert [step.rows[k]["why"] for k in (3, 5, 6)] == ["no answer for 1 s", "ended with code 7", "context"]


def test_a_run_that_was_cut_off_goes_on_behind_its_last_case(tmp_path: Path) -> None:
    command_, lines = worker(tmp_path)
    old = [{"begin": 0, "name": "case 0"}, {"k": 0, "name": "case 0", "ok": True}, {"begin": 1, "name": "case 1"}]
    lines.write_text("".join(json.dumps(r) + "\n" for r in old))
    step = Isolated(command_, lines, 1.0)
    assert step.run(60.0, dict(os.environ), tmp_path) == "done"
    assert [r["k"] for r in step.rows] == list(range(9)) and step.rows[1]["why"] == "the run before ended in this case"
    again = Isolated([sys.executable, "-c", "raise SystemExit(1)"], lines, 1.0)
    assert again.run(60.0, dict(os.environ), tmp_path) == "done" and again.rows == step.rows


def test_a_line_that_a_killed_worker_did_not_end_spoils_no_other(tmp_path: Path) -> None:
    command_, lines = worker(tmp_path)
    lines.write_text('{"begin": 0, "name": "case 0"}\n{"k": 0, "name": "case')
    step = Isolated(command_, lines, 1.0)
    assert step.run(60.0, dict(os.environ), tmp_path) == "done"
    assert [r["k"] for r in step.rows] == list(range(9)) and step.rows[0]["why"] == "the run before ended in this case"


def test_a_run_that_is_interrupted_leaves_no_worker(tmp_path: Path) -> None:
    command_, lines = worker(tmp_path)

    def interrupted(rows: list[dict[str, Any]]) -> None:
        raise KeyboardInterrupt

    begun: list[subprocess.Popen[bytes]] = []

    class Seen(Isolated):
        def watch(self, process: subprocess.Popen[bytes], start: int, end: float, words: Path) -> str:
            begun.append(process)
            return super().watch(process, start, end, words)

    step = Seen(command_, lines, 1.0, interrupted)
    with pytest.raises(KeyboardInterrupt):
        step.run(60.0, dict(os.environ), tmp_path)
    assert begun[0].poll() is not None


def test_a_step_has_no_more_than_its_time(tmp_path: Path) -> None:
    command_, lines = worker(tmp_path)
    step = Isolated(command_, lines, 30.0)
    assert step.run(2.0, dict(os.environ), tmp_path) == "stopped after 2 s"
    assert [r["k"] for r in step.rows] == [0, 1, 2, 3] and step.rows[3]["why"] == "no time left"
    again = Isolated(command_, lines, 1.0)
    assert again.run(60.0, dict(os.environ), tmp_path) == "done"
    assert [r["k"] for r in again.rows] == list(range(9)) and again.rows[3]["why"] == "no answer for 1 s"
    once_more = Isolated(command_, lines, 1.0)
    assert once_more.run(60.0, dict(os.environ), tmp_path) == "done" and once_more.rows == again.rows
    missing = Isolated([sys.executable, "-c", "print('why'); raise SystemExit(3)"], tmp_path / "none.jsonl", 1.0)
    assert missing.run(30.0, dict(os.environ), tmp_path) == "did not begin: ended with code 3" and "why" in missing.said


def test_a_killed_worker_takes_its_children_along(tmp_path: Path) -> None:
    child = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print(p.pid, file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", child, str(tmp_path / "pid")], start_new_session=True)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        pass
    pid = int((tmp_path / "pid").read_text())
    assert isolated.kill(process)
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "zombie" in status.read_text()
