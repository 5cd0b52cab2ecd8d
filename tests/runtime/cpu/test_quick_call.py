"""Calls at shapes seen before skip what was settled, and nothing else."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.runtime.cpu import quick_call
from tatami.runtime.cpu import short_call as short_call_module
from tatami.runtime.cpu.short_call import short_call


@pytest.fixture(params=["c", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How quick calls are made."""
    if request.param == "python":
        monkeypatch.setattr(quick_call, "short_call", lambda: None)
    elif short_call() is None:
        pytest.skip("the headers of Python or numpy are missing")
    return request.param


@pytest.fixture
def f(way: str) -> Any:
    g = tt.Graph("axpy")
    x, y = (g.input(n, ("N", 64), tt.fp32) for n in "xy")
    g.output("z", x * 2.0 + y)
    g.output("s", (x + y).sum(axis=1))
    return tt.compile(g, threads=1)


def arrays(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal((n, 64)).astype(np.float32) for k in "xy"}


def check(made: Any, x: np.ndarray, y: np.ndarray) -> None:
    np.testing.assert_allclose(made["z"], x * 2 + y, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(made["s"], (x + y).sum(1), rtol=1e-4, atol=1e-4)


def test_every_form_of_a_call_gives_the_same(f: Any) -> None:
    for seed in range(3):
        a = arrays(5, seed)
        for made in (f(a), f(**a), f(a["x"], a["y"]), f(a["x"], y=a["y"])):
            check(made, **a)
    assert f.memory["copies"] == {}


def test_calls_at_shapes_seen_before_take_the_short_way(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (5, 6):
        f(arrays(n))
    monkeypatch.delattr(type(f).__mro__[1], "_take")
    for n in (6, 5, 6):
        a = arrays(n, n)
        check(f(a), **a)


@pytest.mark.parametrize(
    "form",
    [
        lambda a: a[::-1],
        lambda a: np.asfortranarray(a),
        lambda a: a.astype(">f4"),
        lambda a: np.frombuffer(b"." + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(a.shape),
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a.tolist(),
    ],
    ids=["reversed", "fortran", "big endian", "unaligned", "read-only", "list"],
)
def test_arrays_that_kernels_cannot_read_in_place_go_the_long_way(f: Any, form: Any) -> None:
    a = arrays(5)
    f(a)
    x = form(a["x"])
    check(f(x=x, y=a["y"]), np.asarray(x, np.float32), a["y"])


def test_what_does_not_fit_is_refused_after_a_quick_call_too(f: Any) -> None:
    a = arrays(5)
    f(a)
    for wrong in (
        {"x": a["x"]},
        {**a, "w": a["x"]},
        {"x": a["x"].astype(np.float64), "y": a["y"]},
        {"x": a["x"][:3], "y": a["y"]},
    ):
        with pytest.raises(TatamiError):
            f(wrong)
    with pytest.raises(TatamiError):
        f(a["x"], a["y"], a["y"])


def test_other_shapes_and_threads_do_not_meet(f: Any) -> None:
    given = [arrays(200 + k % 3, k) for k in range(6)]
    failed: list[BaseException] = []

    def work(a: dict[str, np.ndarray]) -> None:
        try:
            for _ in range(30):
                check(f(a), **a)
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=work, args=(a,)) for a in given]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failed == []


def test_results_that_are_held_stay_as_they_are(f: Any) -> None:
    given = [arrays(5, k) for k in range(6)]
    held = [f(a)["z"] for a in given]
    for z, a in zip(held, given):
        np.testing.assert_allclose(z, a["x"] * 2 + a["y"], rtol=1e-6, atol=1e-6)
        assert z.ctypes.data % 64 == 0 and z.flags.writeable


def test_nothing_is_kept_of_a_call(f: Any) -> None:
    """Counts of references of what is passed and of dtypes are the same after a thousand calls, refused ones among them."""
    a = arrays(5)
    f(a)
    counted = (a, a["x"], a["x"].dtype, None, "z")
    before = [sys.getrefcount(x) for x in counted]
    for _ in range(1000):
        f(a)
        assert f._recent.run({"x": a["x"]}) is None and f._recent.run({**a, "x": a["x"].T}) is None
    after = [sys.getrefcount(x) for x in counted]
    assert all(abs(x - y) < 20 for x, y in zip(before, after)), (before, after)


def test_faults_and_arenas(way: str) -> None:
    """An index outside its tensor is the same diagnostic the second time; what lies between kernels has memory."""
    g = tt.Graph("rows")
    x, i = g.input("x", (8, 40), tt.fp32), g.input("i", (4,), tt.i64)
    rows = x[i]
    g.output("y", (rows @ x.transpose(0, 1)).softmax(-1) @ x)
    g.output("r", rows)
    f = tt.compile(g, threads=1)
    a = np.random.default_rng(0).standard_normal((8, 40)).astype(np.float32)
    for _ in range(3):
        made = f(x=a, i=np.array([0, 7, 3, 3]))
        np.testing.assert_array_equal(made["r"], a[[0, 7, 3, 3]])
        with pytest.raises(TatamiError, match="IndexOutOfRange"):
            f(x=a, i=np.array([0, 8, 3, 3]))


def test_many_arrays(way: str) -> None:
    g = tt.Graph("many")
    xs = [g.input(f"x{k}", (3,), tt.fp32) for k in range(80)]
    for k, x in enumerate(xs):
        g.output(f"y{k}", x + float(k))
    f = tt.compile(g, threads=1)
    a = {f"x{k}": np.full(3, k, np.float32) for k in range(80)}
    for _ in range(3):
        made = f(a)
        assert all((made[f"y{k}"] == 2 * k).all() for k in range(80))


def test_without_headers_calls_stay_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_call_module, "_headers", lambda: None)
    monkeypatch.setattr(short_call_module, "_loaded", [])
    assert short_call() is None
    g = tt.Graph("g")
    g.output("y", g.input("x", (3,), tt.fp32) + 1.0)
    f = tt.compile(g, threads=1)
    for _ in range(3):
        assert (f(np.ones(3, np.float32))["y"] == 2).all()
    assert f._recent.run.__name__ == "run"
