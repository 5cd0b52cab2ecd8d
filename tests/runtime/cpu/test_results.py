"""Reuse of a result's memory: only after the last reference to it is gone."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.runtime.arrays import LARGE_BYTES, PAGE, SMALL_BYTES, address
from tatami.runtime.cpu.results import KEPT, Results

SHAPE = (SMALL_BYTES, 3)


def new(results: Results) -> np.ndarray:
    return results.new(0, SHAPE, np.dtype(np.float32))[0]


def test_the_memory_of_a_result_that_is_gone_is_taken_again() -> None:
    results = Results()
    first = new(results)
    place = address(first)
    assert first.shape == SHAPE and first.dtype == np.float32 and first.flags.writeable and place % 64 == 0
    del first
    assert address(new(results)) == place


@pytest.mark.parametrize(
    "hold",
    [
        lambda a: a,
        lambda a: a[5:, ::-1],
        lambda a: a.reshape(-1)[7:].view(np.int32),
        memoryview,
        lambda a: a.ctypes,
        lambda a: pytest.importorskip("torch").from_numpy(a)[1:],
        lambda a: np.from_dlpack(a)[1:],
    ],
    ids=["array", "view", "view of a view", "memoryview", "ctypes", "torch", "dlpack"],
)
def test_memory_that_somebody_sees_is_not(hold: Any) -> None:
    results = Results()
    first = new(results)
    place = address(first)
    held = hold(first)
    del first
    gc.collect()
    others = [new(results) for _ in range(KEPT + 1)]
    assert place not in [address(a) for a in others]
    del held


def test_a_loop_that_holds_the_last_result_takes_turns() -> None:
    results = Results()
    places = set()
    result = new(results)
    for _ in range(6):
        result = new(results)
        places.add(address(result))
    assert len(places) == KEPT


def test_another_shape_gets_memory_of_its_own() -> None:
    results = Results()
    small, large = (results.new(0, (n * SMALL_BYTES,), np.dtype(np.float32))[0] for n in (1, 2))
    small[:], large[:] = 1, 2
    assert (small == 1).all() and (large == 2).all()


def test_results_of_calls_are_separate() -> None:
    g = tt.Graph("twice")
    x = g.input("x", SHAPE, tt.fp32)
    g.output("y", x + x)
    f = tt.compile(g)
    kept = [f(x=np.full(SHAPE, k, np.float32))["y"] for k in range(5)]
    assert [float(y[0, 0]) for y in kept] == [0, 2, 4, 6, 8]
    assert all((y == y[0, 0]).all() for y in kept)


@pytest.mark.parametrize("in_c", [True, False])
def test_large_results_begin_in_the_middle_of_a_page(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers' arrays begin at the first lines of a page, so the processor does not take loads for data just stored."""
    if not in_c:
        monkeypatch.setattr("tatami.runtime.cpu.quick_call.short_call", lambda: None)
    for rows, at in ((LARGE_BYTES // 4096, PAGE // 2), (LARGE_BYTES // 4096 - 1, None)):
        g = tt.Graph("page")
        g.output("y", g.input("x", (rows, 1024), tt.fp32).relu())
        f, x = tt.compile(g), np.ones((rows, 1024), np.float32)
        for _ in range(3):
            y = f({"x": x})["y"]
            assert address(y) % 64 == 0 and (at is None or address(y) % PAGE == at)
