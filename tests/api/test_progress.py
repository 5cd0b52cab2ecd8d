"""How far a compilation is: told to a function, drawn on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tatami as tt

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def model() -> tt.Graph:
    g = tt.Graph("m")
    x = g.input("x", ("B", 3), tt.fp32)
    g.output("y", (x @ g.constant(np.ones((3, 4), np.float32))).relu())
    return g


def test_a_function_is_told_of_every_stage_and_of_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path))
    told: list[tuple[str, int, int]] = []
    f = tt.compile(model(), progress=lambda *step: told.append(step))
    stages = [t for t in told if t[0] != "kernels"]
    kernels = [t for t in told if t[0] == "kernels"]
    assert {t[0] for t in stages} >= {"tiny", "region", "plan", "loop", "c"}
    assert [t[1] for t in stages] == sorted(t[1] for t in stages) and all(0 <= d <= n for _, d, n in told)
    assert [d for _, d, _ in kernels] == list(range(kernels[0][2])), "one word per object of the C compiler"
    assert told == stages + kernels
    assert f(x=np.ones((2, 3), np.float32))["y"].shape == (2, 4)


def test_a_program_that_was_found_reports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    tt.compile(model())
    told: list[tuple[str, int, int]] = []
    tt.compile(model(), progress=lambda *step: told.append(step))
    assert not told


def test_a_pipe_gets_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    tt.compile(model(), progress=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("command", [["compile", str(DIGITS), "-o", "out"], ["run", str(DIGITS)]])
def test_a_terminal_gets_a_bar(command: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "TATAMI_CACHE_DIR": str(tmp_path / "c")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tatami", *command], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:  # how the end of a terminal reads
        pass
    os.close(ours)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())  # a quick machine may draw only the first and the last
    assert b"\x1b[2K" in shown and re.search(r"[a-z_]+ +[━╸╺ ]+\d+/\d+ \d:\d\d:\d\d", frames), frames
    assert b"\x1b" not in printed
