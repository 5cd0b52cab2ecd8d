"""Derivatives of calls, branches and loops, against differences, and compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tatami as tt
from tatami.api import compile
from tatami.core.diagnostic import TatamiError
from tatami.derivative.api import gradient
from tatami.frontend.graph import Graph
from tatami.frontend.run import run
from tests.derivative.differences import error, variables, with_loss

Inputs = dict[str, np.ndarray]


def called_twice() -> tuple[Graph, Inputs]:
    g = Graph("main")
    f = g.subgraph("f")
    a, w = f.input("a", ("N",), tt.fp32), f.input("w", ("N", "N"), tt.fp32)
    f.output("b", (w @ a).tanh() + a)
    x, w = g.input("x", (4,), tt.fp32), g.input("w", (4, 4), tt.fp32)
    g.output("y", g.call(f, g.call(f, x, w), w))
    return g, {"x": draw(4), "w": draw(4, 4)}


def branches() -> tuple[Graph, Inputs]:
    g = Graph("main")
    yes, no = g.subgraph("yes"), g.subgraph("no")
    for h, name in ((yes, "exp"), (no, "tanh")):
        a, b = h.input("a", (4,), tt.fp32), h.input("b", (4,), tt.fp32)
        h.output("r", a.op(name) * b if name == "exp" else a.op(name))
    x, z = g.input("x", (4,), tt.fp32), g.input("z", (4,), tt.fp32)
    c = g.input("c", (), tt.bool)
    g.output("y", g.cond(c, yes, no, x, z))
    return g, {"x": draw(4), "z": draw(4), "c": np.array(True)}


def loop(*, counted: bool) -> tuple[Graph, Inputs]:
    """A state, an integer state, a scan output and an invariant; the number of turns is a size, or found by the data."""
    g = Graph("main")
    body = g.subgraph("body")
    _, go = body.input("i", (), tt.i64), body.input("go", (), tt.bool)
    s, n = body.input("s", (4,), tt.fp32), body.input("n", (), tt.i64)
    w = body.input("w", (4, 4), tt.fp32)
    after = (w @ s).tanh() * 0.9 + s * (n.cast(tt.fp32) * 0.1)
    body.output("goes_on", go if counted else n < 3)
    body.output("after", after)
    body.output("more", n + 1)
    body.output("row", after * s)
    x, w = g.input("x", (4,), tt.fp32), g.input("w", (4, 4), tt.fp32)
    start = g.number(0, tt.i64)
    found = (
        g.loop(body, [x, start], [w], trip=5) if counted else g.loop(body, [x, start], [w], condition=g.number(True, tt.bool))
    )
    g.output("last", found[0])
    g.output("rows", found[2])
    return g, {"x": draw(4), "w": draw(4, 4)}


def nested() -> tuple[Graph, Inputs]:
    """A loop whose body calls a graph with a branch."""
    g = Graph("main")
    yes, no, step, body = (g.subgraph(n) for n in ("yes", "no", "step", "body"))
    for h, name in ((yes, "sigmoid"), (no, "sin")):
        h.output("r", h.input("a", ("N",), tt.fp32).op(name))
    a = step.input("a", ("N",), tt.fp32)
    step.output("b", step.cond(a.sum() > 0.0, yes, no, a) * a)
    _, go = body.input("i", (), tt.i64), body.input("go", (), tt.bool)
    s = body.input("s", ("N",), tt.fp32)
    body.output("go_on", go)
    body.output("after", body.call(step, s) + s * 0.5)
    g.output("y", g.loop(body, [g.input("x", ("M",), tt.fp32)], trip=3))
    return g, {"x": draw(5)}


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape)


CASES: dict[str, Callable[[], tuple[Graph, Inputs]]] = {
    "a graph called twice": called_twice,
    "branches": branches,
    "a counted loop": lambda: loop(counted=True),
    "a loop that data end": lambda: loop(counted=False),
    "a branch in a call in a loop": nested,
}


@pytest.mark.parametrize("name", CASES)
def test_the_derivative_is_the_limit_of_differences(name: str) -> None:
    g, inputs = CASES[name]()
    assert error(with_loss(g.module()), inputs, {}) < 1e-6


def test_the_other_branch_has_its_own_derivative() -> None:
    g, inputs = branches()
    assert error(with_loss(g.module()), {**inputs, "c": np.array(False)}, {}) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_meaning(name: str) -> None:
    g, inputs = CASES[name]()
    module = with_loss(g.module())
    made = gradient(module, of="loss_", wrt=variables(module))
    given = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in inputs.items()}
    want = run(made, given, mode="float64")
    for key, value in compile(made, target="cpu")(given).items():
        np.testing.assert_allclose(value, want[key], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["a graph called twice", "a counted loop"])
def test_second_derivatives_through_calls_and_loops(name: str) -> None:
    g, inputs = CASES[name]()
    module = with_loss(g.module())
    first = gradient(module, of="loss_", wrt=variables(module))
    assert error(with_loss(first, "second_"), inputs, {}, of="second_") < 1e-5


def test_graphs_that_are_called_no_longer_are_left_out() -> None:
    g, _ = loop(counted=True)
    made = gradient(with_loss(g.module()), of="loss_", wrt=["x"])
    assert set(made.programs) == {"main", "body.states", "body.gradient", "body.backwards"}


def test_a_state_that_grows_is_refused() -> None:
    g = Graph("main")
    body = g.subgraph("body")
    body.input("i", (), tt.i64)
    go, s = body.input("go", (), tt.bool), body.input("s", ("L",), tt.fp32)
    body.output("go_on", go)
    body.output("longer", body.concat([s, s[:1]]))
    g.output("y", g.loop(body, [g.input("x", (3,), tt.fp32)], trip=3, new=["S"]))
    with pytest.raises(TatamiError) as info:
        gradient(g, of="y", wrt=["x"])
    assert "loop has no derivative where a result's size is found by the run (S)" in info.value.diagnostics[0].why


def test_a_graph_that_is_called_like_a_derivative_is_not_taken_for_it() -> None:
    """A user's own `f.gradient`, or that of a document whose `f` was edited after it was differentiated."""
    g, inputs = called_twice()
    other = g.subgraph("f.gradient")
    other.output("r", other.input("a", ("N",), tt.fp32) * 3.0)
    g.output("z", g.call(other, g.input("v", (4,), tt.fp32)))
    module = with_loss(g.module())
    assert error(module, {**inputs, "v": draw(4)}, {}) < 1e-6
    assert {"f.gradient", "f.gradient'"} <= set(gradient(module, of="loss_", wrt=["x", "v"]).programs)
