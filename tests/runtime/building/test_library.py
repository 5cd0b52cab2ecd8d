"""Libraries of programs are closed with their last holder, and no sooner (decision 0053)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import tatami as tt
from tatami.core.target import PRESETS
from tatami.runtime.building.library import Library
from tatami.runtime.building.objects import Unit, build, load
from tatami.runtime.building.temporary import loaded_prefix
from tatami.runtime.cpu.pool import runtime_library
from tatami.storage.dump import write_dump
from tests.onnx.test_models import FLOAT, INT64, model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are closed where /proc tells of it")
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
GENERIC = PRESETS["cpu:generic"]
EXPORT = '__attribute__((visibility("default"))) '


def mapped() -> int:
    """Mappings of libraries that were loaded here."""
    with open("/proc/self/maps") as maps:
        return sum(loaded_prefix() in line for line in maps)


def virtual_bytes() -> int:
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def without_collector() -> Iterator[None]:
    """A block without the garbage collector: objects are freed with their last reference."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def graph(k: int = 0) -> tt.Graph:
    g = tt.Graph("g")
    x = g.input("x", (4, 16), tt.fp32)
    g.output("y", (x * float(k + 1) + 0.5).relu() @ g.constant(np.eye(16, dtype=np.float32)))
    return g


def expected(k: int = 0) -> np.ndarray:
    return np.maximum(X * np.float32(k + 1) + np.float32(0.5), 0)


def compiled(k: int = 0, threads: int = 1) -> tt.CompiledFunction:
    return tt.compile(graph(k), threads=threads)


def answer(value: int = 7) -> Library:
    return load(build((Unit(f"{EXPORT}int answer(void) {{ return {value}; }}\n"),), GENERIC))


@pytest.fixture(autouse=True, scope="module")
def _only_new_objects() -> Iterator[None]:
    """Objects of earlier tests stay out of the collections, of which each test makes several: seconds each at the end of a run."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _what_stays() -> None:
    """The runtime's library and the call's in C are loaded before maps are counted."""
    compiled()(x=X)
    gc.collect()


def test_fifty_programs_that_are_dropped_leave_no_mapping() -> None:
    with without_collector():
        before = mapped()
        for k in range(50):
            f = compiled(k % 5, threads=1 + k % 2)
            assert np.allclose(f(x=X)["y"], expected(k % 5), rtol=1e-6)
            assert np.allclose(f.bind(x=X)()["y"], expected(k % 5), rtol=1e-6)
            assert mapped() > before
            del f
            assert mapped() == before


HOLDERS: dict[str, Callable[[tt.CompiledFunction], tuple[Any, Callable[[Any], Any]]]] = {
    "the function": lambda f: (f, lambda held: held(x=X)["y"]),
    "its program": lambda f: (f.program, lambda held: held.run("main", [X], {})[0]),
    "a bound call": lambda f: (f.bind(x=X), lambda held: held()["y"]),
    "the call in C": lambda f: (f._recent.run, lambda held: held({"x": X})["y"]),
    "a bare entry": lambda f: (f.program.entry("tatami_entry"), lambda held: expected()),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_may_still_call_it_keeps_it(name: str) -> None:
    with without_collector():
        before = mapped()
        f = compiled()
        f(x=X)
        held, call = HOLDERS[name](f)
        del f
        assert mapped() > before
        assert np.allclose(call(held), expected(), rtol=1e-6)
        del held
        assert mapped() == before


def test_results_outlive_the_program() -> None:
    with without_collector():
        before = mapped()
        f = compiled()
        results = [f(x=X)["y"], f(x=X)["y"], f.bind(x=X)()["y"], f.program.run("main", [X], {})[0]]
        views = [r[1:, ::2] for r in results]
        del f
        assert mapped() == before
        for r, v in zip(results, views):
            assert np.allclose(r, expected(), rtol=1e-6) and np.array_equal(v, r[1:, ::2])


def test_a_function_alone_holds_its_library() -> None:
    with without_collector():
        before = mapped()
        library = answer()
        function = library.answer
        again = library["answer"]
        del library
        assert function() == again() == 7 and mapped() > before
        del function
        assert mapped() > before
        del again
        assert mapped() == before


def test_a_finalizer_of_a_cycle_may_still_call() -> None:
    """The collector calls callbacks of weak references before finalizers of the same cycle."""
    before, said = mapped(), []

    class Holder:
        def __init__(self) -> None:
            self.library, self.itself = answer(), self

        def __del__(self) -> None:
            said.append(self.library.answer())

    Holder()
    gc.collect()
    assert said == [7] and mapped() == before


def test_what_a_finalizer_brings_back_is_open() -> None:
    before, kept = mapped(), []

    class Holder:
        def __init__(self) -> None:
            self.library, self.itself = answer(), self

        def __del__(self) -> None:
            kept.append(self)

    Holder()
    gc.collect()
    assert kept[0].library.answer() == 7 and mapped() > before
    kept.clear()
    gc.collect()
    assert mapped() == before


def test_no_cycle_holds_the_array_whose_end_closes() -> None:
    library = answer()
    assert not gc.is_tracked(library.opened._held)


def test_the_library_that_stays_is_not_closed() -> None:
    assert load(build((Unit(f"{EXPORT}int stays(void) {{ return 1; }}\n"),), GENERIC), stays=True).stays() == 1
    open_now = mapped()
    gc.collect()
    assert mapped() == open_now and runtime_library().tatami_flush_denormals(0) == 0


def test_a_body_of_the_users_stays() -> None:
    """The library of a user's body stays open: the body may have left a thread or a handler behind."""
    g = tt.Graph("g")
    x = g.input("x", (4, 16), tt.fp32)
    body = "for (ridx0 = 0; ridx0 < 64; ++ridx0) output[ridx0] = -input0[ridx0];"
    g.output("y", g.kernel_body(body, x, outputs=[(tt.fp32, (4, 16))], meaning=lambda a: -a))
    f = tt.compile(g)
    assert np.array_equal(f(x=X)["y"], -X)
    open_now = mapped()
    del f
    gc.collect()
    assert mapped() == open_now


def test_text_of_a_trusted_document_stays(tmp_path: Path) -> None:
    """The library of a trusted document stays open, and that of every other document is closed."""
    f = compiled()
    write_dump(tmp_path, f.compilation.values(), ("loop", "execution", "c"), f.compilation.target)
    del f
    gc.collect()
    for path in sorted(tmp_path.glob("*.json")):
        before = mapped()
        f = tt.compile(path, trust=True)
        assert np.allclose(f(x=X)["y"], expected(), rtol=1e-6) and mapped() > before
        del f
        gc.collect()
        assert (mapped() > before) is path.name.endswith("_c.json")


def test_other_threads_that_are_in_a_call_when_the_last_reference_goes() -> None:
    """Each thread is given the only reference that is left to it, while others call the same program."""
    before, wrong = mapped(), []
    start = threading.Barrier(5)

    def call(held: list[tt.CompiledFunction], k: int) -> None:
        f = held.pop()
        start.wait()
        for _ in range(20):
            y = f(x=X)["y"]
        del f
        if not np.allclose(y, expected(k), rtol=1e-6):
            wrong.append(k)

    for k in range(10):
        f = compiled(k % 5, threads=2)
        callers = [threading.Thread(target=call, args=([f], k % 5)) for _ in range(4)]
        for caller in callers:
            caller.start()
        start.wait()
        del f
        for caller in callers:
            caller.join()
    del callers, caller
    gc.collect()
    assert not wrong and mapped() == before


def test_threads_that_compile_call_and_drop() -> None:
    before, wrong = mapped(), []

    def work(seed: int) -> None:
        for k in range(12):
            number = (k + seed) % 5
            f = compiled(number, threads=1 + (k + seed) % 2)
            if not np.allclose(f(x=X)["y"], expected(number), rtol=1e-6):
                wrong.append((seed, k))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    gc.collect()
    assert not wrong and mapped() == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_closes_its_own() -> None:
    f = compiled(1, threads=2)
    f(x=X)
    open_now = mapped()
    child = os.fork()
    if child == 0:
        prefix = f"tatami-load-{os.getppid()}-"
        fits = np.allclose(f(x=X)["y"], expected(1), rtol=1e-6)
        del f
        with open("/proc/self/maps") as maps:
            left = sum(prefix in line for line in maps)
        os._exit(0 if fits and left < open_now else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mapped() == open_now and np.allclose(f(x=X)["y"], expected(1), rtol=1e-6)


AT_THE_END = """
import sys, threading, time, numpy as np, tatami as tt
g = tt.Graph("g"); x = g.input("x", (512, 512), tt.fp32); g.output("y", (x * 2.0 + 0.5).relu() @ x)
f = tt.compile(g, threads=2); X = np.ones((512, 512), np.float32); f(x=X)
def for_ever():
    while True: f(x=X)
threading.Thread(target=for_ever, daemon=True).start()
class Late:
    def __del__(self): f(x=X)
sys.late = Late()
time.sleep(0.1)
print("end")
"""
IN_A_KERNEL = """
import gc, os, signal, threading, time, numpy as np, tatami as tt
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may have it ignored
g = tt.Graph("g"); x = g.input("x", (768, 768), tt.fp32)
y = x
for _ in range(6): y = (y @ x).relu() * 0.001
g.output("y", y)
X = np.ones((768, 768), np.float32)
def maps(): return sum("tatami-load" in line for line in open("/proc/self/maps"))
f = tt.compile(g, threads=2); f(x=X); h = tt.compile(g, threads=2); del h; gc.collect(); opened = maps()
for k in range(8):
    f = tt.compile(g, threads=2); started = threading.Event()
    def interrupt():
        started.wait(); time.sleep(0.002 * k); os.kill(os.getpid(), signal.SIGINT)
    t = threading.Thread(target=interrupt); t.start()
    try:
        started.set()
        while True: f(x=X)
    except KeyboardInterrupt:
        pass
    t.join()
    f = tt.compile(g, threads=2); f(x=X)
gc.collect()
print("end", maps() == opened)
"""


@pytest.mark.parametrize("text, said", [(AT_THE_END, "end"), (IN_A_KERNEL, "end True")], ids=["at the end", "in a kernel"])
def test_another_process(text: str, said: str, tmp_path: Path) -> None:
    """A thread in a kernel and a finalizer that calls while the interpreter ends; Ctrl-C while kernels run."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, said, "")


def test_an_emulated_machine_is_closed_with_its_memory() -> None:
    g = tt.Graph("g")
    x = g.input("x", (16, 16), tt.fp32)
    g.output("y", x @ g.constant(np.eye(16, dtype=np.float32)))
    square = np.arange(256, dtype=np.float32).reshape(16, 16)

    with without_collector():
        before = mapped()
        for _ in range(2):
            f = tt.compile(g, target="emulated-sm80")
            assert np.allclose(f(x=square)["y"], square, rtol=1e-2)
            room = virtual_bytes()
            held = f.program.machine.make("large", 1 << 24, tt.fp32)
            held[:] = 1
            del f
            assert mapped() > before and held[-1] == 1 and virtual_bytes() >= room + held.nbytes
            del held
            assert mapped() == before and virtual_bytes() < room + (1 << 24)


def test_the_number_of_specialisations_bounds_mapped_code() -> None:
    """A program that leaves the shape set is closed: the maps of two programs, however many sizes come."""
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    made = model([node], [("x", FLOAT, [2, 3, 4]), ("axes", INT64, ["N"])], [("y", FLOAT, None)])
    given, combinations = np.arange(24, dtype=np.float32).reshape(2, 3, 4), ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
    with without_collector():
        before = mapped()
        f = tt.compile(made, threads=1, max_specialisations=2)
        counts = []
        for axes in combinations * 2:
            np.testing.assert_allclose(f(x=given, axes=np.array(axes))["y"], given.sum(axes), rtol=1e-5)
            counts.append(mapped() - before)
        assert f.memory["specialisations"] == 2
        assert counts[1] == 2 * counts[0] > 0 and set(counts[1:]) == {counts[1]}
        del f
        assert mapped() == before


def test_a_saved_program_is_closed_too(tmp_path: Path) -> None:
    path = compiled().save(tmp_path / "m.tatami")
    with without_collector():
        before = mapped()
        for trust in (False, True):
            f = tt.load(path, trust=trust)
            assert np.allclose(f(x=X)["y"], expected(), rtol=1e-6) and mapped() > before
            del f
            assert mapped() == before


def test_the_planted_fault_is_seen() -> None:
    """A function asked of ctypes by name, as `CDLL` does it, is a cycle: the counts above tell it from ours."""
    with without_collector():
        before = mapped()
        library = answer()
        function = library._FuncPtr(("answer", library))
        assert function() == 7
        del function, library
        assert mapped() > before
    gc.collect()
    assert mapped() == before
