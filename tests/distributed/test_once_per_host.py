"""One process of a host compiles a program; its death and its slowness stop nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tatami.runtime.building.once_per_host import one_maker
from tests.distributed.processes import ROOT

COMPILE = """
import sys
import tatami as tt, tatami.build
made, make = [], tatami.build.make_program
tatami.build.make_program = lambda *a, **k: (made.append(1), make(*a, **k))[1]
g = tt.Graph("g")
x = g.input("x", (8, 16), tt.fp32)
for k in range(3):
    x = (x @ g.input(f"w{k}", (16, 16), tt.fp32)).gelu()
g.output("y", x)
tt.compile(g)
print(len(made))
"""
HOLD = """
import sys, time
from pathlib import Path
from tatami.runtime.building.once_per_host import one_maker
with one_maker(Path(sys.argv[1]), "ab" * 32):
    print("held", flush=True)
    time.sleep(600)
"""


def python(text: str, *arguments: str, cache: Path) -> subprocess.Popen[str]:
    told = {"PYTHONPATH": str(ROOT), "TATAMI_CACHE_DIR": str(cache), "TATAMI_PROGRAM_CACHE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments], env={**os.environ, **told}, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_of_three_processes_one_compiles(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    processes = [python(COMPILE, cache=tmp_path) for _ in range(3)]
    assert sorted(p.communicate(timeout=300)[0].strip() for p in processes) == ["0", "0", "1"]


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_a_killed_holder_leaves_the_lock(tmp_path: Path) -> None:
    holder = python(HOLD, str(tmp_path), cache=tmp_path)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    began = time.monotonic()
    with one_maker(tmp_path, "ab" * 32, longest=0.3):
        waited = time.monotonic() - began
    assert waited >= 0.3, "the lock was not held"
    holder.kill()
    holder.communicate()
    began = time.monotonic()
    with one_maker(tmp_path, "ab" * 32, longest=60):
        assert time.monotonic() - began < 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_process_forked_while_it_is_held_does_not_keep_the_lock(tmp_path: Path) -> None:
    forked = f"""
import os, sys, time
from pathlib import Path
from tatami.runtime.building.once_per_host import one_maker
with one_maker(Path({str(tmp_path)!r}), "ab" * 32):
    child = os.fork()
    if not child:
        time.sleep(600)
began = time.monotonic()
with one_maker(Path({str(tmp_path)!r}), "ab" * 32, longest=20):
    print(time.monotonic() - began < 10)
os.kill(child, 9)
"""
    assert python(forked, cache=tmp_path).communicate(timeout=60)[0].strip() == "True"


def test_without_a_folder_there_is_no_lock(tmp_path: Path) -> None:
    with one_maker(None, "ab" * 32), one_maker(None, "ab" * 32):
        pass
    with one_maker(tmp_path / "missing", "ab" * 32), one_maker(tmp_path / "missing", "ab" * 32):
        pass
