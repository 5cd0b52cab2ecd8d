"""Carried values that no turn changes are read: not copied, packed by `setup`, and the same results, also without a turn."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.tiny.ir import CallOp, Program
from tatami.tiny.passes.invariants import read_unchanged_states
from tatami.tiny.run import run
from tatami.tiny.verify import verify


def chain(*, changes: bool = False, twice: bool = False) -> tt.Graph:
    """h -> tanh(h W) as often as `n` says; the loop carries W, and returns all that it carries."""
    g = tt.Graph("chain")
    body = g.subgraph("turn")
    body.input("i", (), tt.i64)
    go = body.input("go", (), tt.bool)
    w, h = body.input("w", (32, 32), tt.fp32), body.input("h", ("B", 32), tt.fp32)
    body.output("again", go)
    body.output("w_next", w * 1.5 if changes else w)
    body.output("h_next", h.matmul(w).tanh())
    body.output("seen", h.sum())
    matrix = np.random.default_rng(5).standard_normal((32, 32)).astype(np.float32) / 6
    w0, x = g.constant(matrix), g.input("x", ("B", 32), tt.fp32)
    w1, h1, seen = g.loop(body, [w0, x], trip=3)
    if twice:
        w1, h1, seen = g.loop(body, [w1, h1], trip=2)
    for name, value in (("w", w1), ("h", h1), ("seen", seen)):
        g.output(name, value)
    return g


def loops(program: Program) -> list[tuple[int, int]]:
    """(Carried values, results) of each loop."""
    found = [n.op for n in program.nodes if isinstance(n.op, CallOp) and n.op.kind == "loop"]
    return [(int(str(op.attrs["carried"])), len(op.results)) for op in found]


@pytest.mark.parametrize("twice", [False, True])
def test_unchanged_states_are_read(twice: bool) -> None:
    f = tt.compile(chain(twice=twice), target="cpu")
    imported, tiny = f.stages["tiny@imported"].value, f.stages["tiny"].value
    assert loops(imported.main) == [(2, 3)] * (1 + twice)
    assert loops(tiny.main) == [(1, 2)] * (1 + twice)
    assert verify(tiny) == []
    x = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    want, got, compiled = run(imported, {"x": x}), run(tiny, {"x": x}), f(x=x)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6)
        np.testing.assert_allclose(compiled[name], want[name], rtol=1e-5, atol=1e-6)


def test_a_state_that_changes_is_carried() -> None:
    f = tt.compile(chain(changes=True), target="cpu")
    assert loops(f.stages["tiny"].value.main) == [(2, 3)]
    imported = f.stages["tiny@imported"].value
    assert read_unchanged_states(imported) is imported


def test_a_loop_that_never_turns_gives_what_it_began_with() -> None:
    g = tt.Graph("none")
    body = g.subgraph("turn")
    body.input("i", (), tt.i64)
    go = body.input("go", (), tt.bool)
    w, h = body.input("w", (3,), tt.fp32), body.input("h", (3,), tt.fp32)
    body.output("again", go)
    body.output("w_next", w)
    body.output("h_next", h + w)
    a, b, n = g.input("a", (3,), tt.fp32), g.input("b", (3,), tt.fp32), g.input("n", (), tt.i64)
    for name, value in zip(("w", "h"), g.loop(body, [a, b], trip=n), strict=True):
        g.output(name, value)
    f = tt.compile(g, target="cpu")
    assert loops(f.stages["tiny"].value.main) == [(1, 1)]
    a_, b_ = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    for turns in (0, 2):
        out = f(a=a_, b=b_, n=np.array(turns))
        np.testing.assert_array_equal(out["w"], a_)
        np.testing.assert_array_equal(out["h"], b_ + turns * a_)


def test_a_loop_of_unchanged_states_alone_stays() -> None:
    g = tt.Graph("idle")
    body = g.subgraph("turn")
    body.input("i", (), tt.i64)
    go = body.input("go", (), tt.bool)
    body.output("again", go)
    body.output("w_next", body.input("w", (3,), tt.fp32))
    g.output("w", g.loop(body, [g.input("a", (3,), tt.fp32)], trip=2))
    f = tt.compile(g, target="cpu")
    np.testing.assert_array_equal(f(a=np.ones(3, np.float32))["w"], np.ones(3, np.float32))
