"""Calls at shapes seen before skip what was settled, and nothing else."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError


@pytest.fixture(scope="module")
def f() -> Any:
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
