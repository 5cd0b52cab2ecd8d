"""Work apart from the main thread: no handler of a signal interrupts it, and whoever ends the wait finds it put away."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tatami.runtime.building import temporary
from tatami.runtime.building.apart import Apart, apart
from tatami.runtime.building.temporary import build_folder, loaded_file
from tests.fuzz.interrupts import FINE, campaign

ROOT = Path(__file__).parents[3]


class Stopped(Exception):
    pass


def test_the_result_and_the_error_are_those_of_the_work() -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="")
    place.set("here")
    assert apart(lambda _: (place.get(), threading.current_thread() is threading.main_thread())) == ("here", False)
    with pytest.raises(Stopped):
        apart(lambda _: (_ for _ in ()).throw(Stopped()))


def test_what_it_tells_is_called_by_the_thread_that_waits() -> None:
    told: list[tuple[int, bool]] = []

    def work(seen: Apart) -> None:
        for k in range(3):
            seen.tell(lambda k: told.append((k, threading.current_thread() is threading.main_thread())), k)

    apart(work)
    assert told == [(0, True), (1, True), (2, True)]


def test_an_error_of_what_is_told_stops_the_work() -> None:
    put_away = []

    def told() -> None:
        raise Stopped

    def work(seen: Apart) -> None:
        seen.tell(told)
        assert seen.stop.wait(10)
        put_away.append(True)

    with pytest.raises(Stopped):
        apart(work)
    assert put_away == [True]


def test_meanwhile_runs_in_parallel_with_the_work_and_stops_it() -> None:
    begun, put_away = threading.Event(), []

    def work(seen: Apart) -> str:
        begun.set()
        put_away.append(seen.stop.wait(10))
        return "done"

    def meanwhile() -> None:
        assert threading.current_thread() is threading.main_thread() and begun.wait(10)
        raise Stopped

    with pytest.raises(Stopped):
        apart(work, meanwhile)
    assert put_away == [True]
    order: list[str] = []
    other = threading.Thread(target=lambda: apart(lambda _: order.append("work"), lambda: order.append("meanwhile")))
    other.start()
    other.join()
    assert order == ["meanwhile", "work"], "outside of the main thread"


def test_work_inside_of_work_stops_with_it() -> None:
    stops: list[threading.Event] = []

    def outer(seen: Apart) -> None:
        stops.append(seen.stop)
        apart(lambda inner: stops.append(inner.stop))

    apart(outer)
    assert stops[0] is stops[1]


@pytest.mark.parametrize("times", [1, 5])
def test_a_handler_that_raises_waits_for_the_work(times: int) -> None:
    """However often the signal comes."""
    put_away = threading.Event()

    def raises(*_: object) -> None:
        raise Stopped

    def work(seen: Apart) -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.02)
        assert seen.stop.wait(10)
        time.sleep(0.2)
        put_away.set()

    before = signal.signal(signal.SIGUSR1, raises)
    try:
        with pytest.raises(Stopped):
            apart(work)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert put_away.is_set()


ENDED = """
import sys, time
from tatami.runtime.building.apart import apart
from tatami.runtime.building.temporary import build_folder
def work(seen):
    with build_folder() as folder:
        (folder / "x.s").touch()
        print("ready", flush=True)
        assert seen.stop.wait(20)
apart(work)
"""


def test_a_signal_that_nobody_handles_ends_the_process_as_it_would(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", ENDED], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_dead", [True, False])
def test_what_a_process_left_that_was_killed_goes_an_hour_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dead: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_lives", lambda _: not is_dead)
    folder, file, young = (tmp_path / n for n in ("tatami-build-123-a", "tatami-load-123-b.so", "tatami-build-123-young"))
    folder.mkdir()
    young.mkdir()
    file.touch()
    (folder / "u0.s").touch()
    for path in (folder, file):
        os.utime(path, (1, 1))
    temporary._swept.clear()
    with build_folder() as made:
        assert (folder.exists(), file.exists()) == (not is_dead, not is_dead)
        assert young.exists() and made.parent == tmp_path
    assert not made.exists()
    handle, mapped = loaded_file()
    os.close(handle)
    assert Path(mapped).name.startswith(f"tatami-load-{os.getpid()}-")


def test_a_build_folder_may_vanish() -> None:
    with build_folder() as folder:
        folder.rmdir()


FULL = """
import resource, signal, sys
import tatami as tt
from tatami.runtime.building.compiler import find_compiler
find_compiler()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
g = tt.Graph("g")
x = g.input("x", ("N", 8), tt.fp32)
g.output("y", x.softmax(1))
try:
    tt.compile(g)
except tt.TatamiError as error:
    print(error.diagnostics[0].kind, len(error.diagnostics))
"""


@pytest.mark.parametrize("most", [2_000, 12_000])
def test_a_full_disk_is_one_diagnostic_and_leaves_no_file(tmp_path: Path, most: int) -> None:
    """No file may be longer than so many bytes: the headers are not written, or what the compiler writes between its steps."""
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "TATAMI_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    env |= {"TATAMI_CALIBRATE": "0"}
    done = subprocess.run([sys.executable, "-c", FULL, str(most)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() in (["FileUnwritable", "1"], ["CompilerFailed", "1"])
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("kind", ["command", "plain", "raises"])
def test_signals_at_random_moments_leave_nothing(kind: str) -> None:
    """A share of ``python -m tests.fuzz.interrupts``."""
    counts = campaign([kind], range(2))
    assert {name.split()[1] for name in counts} <= set(FINE), counts
