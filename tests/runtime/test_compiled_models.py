"""Models through the whole chain on the CPU: control flow, sizes from data, states, gathers, against the reference."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph

F32 = DType.fp32
Arrays = dict[str, np.ndarray]


def floats(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def agree(g: Graph, *calls: Arrays) -> tt.Function:
    reference, compiled = tt.compile(g, target="reference"), tt.compile(g, target="cpu")
    for inputs in calls:
        want = reference({n: a.copy() for n, a in inputs.items()})
        got = compiled({n: a.copy() for n, a in inputs.items()})
        for name, array in want.items():
            assert got[name].shape == array.shape and got[name].dtype == array.dtype
            np.testing.assert_allclose(got[name], array, rtol=1e-3, atol=1e-5)
    return compiled


def layers() -> Graph:
    g = Graph()
    x = g.input("x", ("B", 32), F32)
    w = g.constant(floats(32, 32) / 8, "w", role="param")
    for _ in range(4):
        x = (x @ w).relu()
    g.output("y", x)
    return g


def test_layers_at_several_sizes_with_one_pool_of_constants() -> None:
    f = agree(layers(), *({"x": floats(b, 32)} for b in (1, 0, 7, 64)))
    assert f.memory["constants"] > 0 and f.memory["arena"] <= f.memory["arena_without_reuse"]


def test_memory_of_known_sizes_is_there_before_the_first_call() -> None:
    f = tt.compile(layers(), target="cpu", sizes={"B": 8})
    kept = [arena.nbytes for arena, _ in f.program._arenas]
    assert kept == [f.memory["arena"]] and kept[0] > 0


def test_threads_share_one_function() -> None:
    f = tt.compile(layers(), target="cpu")
    want = {b: f(x=floats(b, 32))["y"] for b in range(1, 9)}
    wrong: list[int] = []

    def work(b: int) -> None:
        for _ in range(20):
            if not np.array_equal(f(x=floats(b, 32))["y"], want[b]):
                wrong.append(b)

    threads = [threading.Thread(target=work, args=(b,)) for b in want]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_sizes_that_depend_on_data() -> None:
    g = Graph()
    x = g.input("x", ("N",), F32)
    where = x.op("nonzero", size="K")
    g.output("y", where.cast(F32) * 2.0 + 1.0)
    g.output("z", x * 2.0)
    some = floats(50)
    some[some < 0] = 0
    agree(g, {"x": some}, {"x": np.zeros(4, np.float32)}, {"x": np.ones(1, np.float32)})


def test_calls_and_branches() -> None:
    g = Graph()
    for name, make in (("double", lambda t: (t + t).exp()), ("half", lambda t: t * 0.5)):
        sub = g.subgraph(name)
        sub.output("r", make(sub.input("d", ("K",), F32)))
    x, c = g.input("x", ("N",), F32), g.input("c", (), DType.bool)
    g.output("y", g.cond(c, "double", "half", g.call("double", x)))
    agree(g, *({"x": floats(n) / 8, "c": np.asarray(n > 3)} for n in (0, 1, 3, 9)))


def looping(trip: Callable[[Graph], Any]) -> Graph:
    g = Graph()
    body = g.subgraph("body")
    body.input("i", (), DType.i64)
    keep = body.input("k", (), DType.bool)
    s, w = body.input("s", ("N",), F32), body.input("w", ("N",), F32)
    body.output("k2", keep)
    body.output("s2", s * 0.9 + w)
    body.output("row", s.exp())
    x, w = g.input("x", ("N",), F32), g.input("w", ("N",), F32)
    last, rows = g.loop("body", [x], [w], trip=trip(g))
    g.output("y", last)
    g.output("rows", rows)
    return g


def test_loops_of_known_and_unknown_length() -> None:
    agree(looping(lambda g: 5), {"x": floats(6), "w": floats(6, seed=1)})
    trips = [{"x": floats(6), "w": floats(6, seed=1), "t": np.asarray(t)} for t in (0, 1, 4)]
    agree(looping(lambda g: g.input("t", (), DType.i64)), *trips)


def test_a_state_is_updated() -> None:
    g = Graph()
    s = g.input("s", ("B", 8), F32, mutability="mutable")
    x = g.input("x", ("B", 8), F32)
    new = s * 0.5 + x
    g.update(s, new)
    g.output("y", (s @ new.permute(1, 0)).relu())
    f = agree(g, {"s": floats(3, 8), "x": floats(3, 8, seed=1)})
    state = floats(3, 8)
    f(s=state, x=np.zeros((3, 8), np.float32))
    np.testing.assert_array_equal(state, floats(3, 8) * np.float32(0.5))


def test_an_index_out_of_range_is_reported_and_the_function_lives_on() -> None:
    g = Graph()
    x, i = g.input("x", ("N", 3), F32), g.input("i", ("M",), DType.i64)
    g.output("y", x.take(i, 0) * 2.0)
    good = {"x": floats(5, 3), "i": np.array([1, 4, -1])}
    f = agree(g, good)
    with pytest.raises(tt.TatamiError, match="E1804"):
        f(x=floats(5, 3), i=np.array([7]))
    assert f(good)["y"].shape == (3, 3)
