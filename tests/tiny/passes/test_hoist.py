"""Constant work of branches and bodies is done in `setup`: the same results, and nothing left of it where it stood."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tatami as tt
from tatami.core.module import Module
from tatami.tiny.ir import CallOp, Elementwise, Program
from tatami.tiny.passes.hoist import hoist_constants
from tatami.tiny.run import run
from tatami.tiny.verify import verify

X = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)


def matrix(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((16, 16)).astype(np.float32) / 4


def turned(g: tt.Graph, w: tt.Tensor) -> tt.Tensor:
    """The halves of a matrix the other way round, and doubled: work on what may be a constant."""
    return g.concat([w[8:], w[:8]]) * 2.0


def turned_array(w: np.ndarray) -> np.ndarray:
    return np.concatenate([w[8:], w[:8]]) * 2


def body(g: tt.Graph) -> tt.Graph:
    """A turn of h -> tanh(h turned(w))."""
    turn = g.subgraph("turn")
    turn.input("i", (), tt.i64)
    go = turn.input("go", (), tt.bool)
    h, w = turn.input("h", ("B", 16), tt.fp32), turn.input("w", (16, 16), tt.fp32)
    turn.output("again", go)
    turn.output("h_next", (h @ turned(turn, w)).tanh())
    return turn


def choice(then: Callable[[tt.Graph, tt.Tensor], tt.Tensor], otherwise: Callable[[tt.Graph, tt.Tensor], tt.Tensor]) -> tt.Graph:
    """y = then(x) or otherwise(x), as c says."""
    g = tt.Graph("choice")
    chosen = []
    for name, make in (("then", then), ("otherwise", otherwise)):
        branch = g.subgraph(name)
        branch.output("y", make(branch, branch.input("x", ("B", 16), tt.fp32)))
        chosen.append(branch)
    c, x = g.input("c", (), tt.bool), g.input("x", ("B", 16), tt.fp32)
    g.output("y", g.cond(c, chosen[0], chosen[1], x))
    return g


def layer(seed: int) -> Callable[[tt.Graph, tt.Tensor], tt.Tensor]:
    return lambda g, x: (x @ turned(g, g.constant(matrix(seed)))).tanh()


def chain(g: tt.Graph, x: tt.Tensor) -> tt.Tensor:
    """A loop in a branch: the work is two programs away from main."""
    h: tt.Tensor = g.loop(body(g), [x], [g.constant(matrix(7))], trip=3)
    return h


def work(module: Module[Program]) -> int:
    """Computed matrices in called programs."""
    called = [p for name, p in module.programs.items() if name not in ("main", "setup")]
    shapes = [[s.as_int() for s in n.shape] for p in called for n in p.nodes if isinstance(n.op, Elementwise)]
    return shapes.count([16, 16])


@pytest.mark.parametrize("graph", [choice(layer(5), layer(6)), choice(chain, layer(6))], ids=["branches", "a loop in a branch"])
def test_work_of_called_programs_is_done_in_setup(graph: tt.Graph) -> None:
    f = tt.compile(graph, target="cpu")
    imported, tiny = f.stages["tiny@imported"].value, f.stages["tiny"].value
    assert work(imported) > 0
    assert work(tiny) == 0
    assert len(tiny.programs["setup"].outputs) == 2
    assert verify(tiny) == []
    for c in (True, False):
        given = {"c": np.array(c), "x": X}
        want, got, compiled = run(imported, given), run(tiny, given), f(given)
        np.testing.assert_allclose(got["y"], want["y"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(compiled["y"], want["y"], rtol=1e-5, atol=1e-6)


def test_each_call_passes_the_work_on_its_own_constant() -> None:
    """One body, called with two matrices: `setup` does the work twice."""
    g = tt.Graph("two")
    turn, h = body(g), g.input("x", ("B", 16), tt.fp32)
    for seed in (1, 2):
        h = g.loop(turn, [h], [g.constant(matrix(seed))], trip=2)
    g.output("y", h)
    f = tt.compile(g, target="cpu")
    tiny = f.stages["tiny"].value
    assert work(tiny) == 0
    assert len(tiny.programs["setup"].outputs) == 2
    want = X
    for seed in (1, 1, 2, 2):
        want = np.tanh(want @ turned_array(matrix(seed)))
    np.testing.assert_allclose(f(x=X)["y"], want, rtol=1e-5, atol=1e-5)


def test_what_one_call_passes_as_an_input_is_no_constant() -> None:
    g = tt.Graph("given")
    turn, h, w = body(g), g.input("x", ("B", 16), tt.fp32), g.input("w", (16, 16), tt.fp32)
    for matrices in (w, g.constant(matrix(2))):
        h = g.loop(turn, [h], [matrices], trip=1)
    g.output("y", h)
    f = tt.compile(g, target="cpu")
    tiny = f.stages["tiny"].value
    assert work(tiny) > 0
    assert hoist_constants(tiny) is tiny
    want = np.tanh(np.tanh(X @ turned_array(matrix(1))) @ turned_array(matrix(2)))
    np.testing.assert_allclose(f(x=X, w=matrix(1))["y"], want, rtol=1e-5, atol=1e-5)


def test_what_a_loop_carries_is_no_constant() -> None:
    """A carried value begins as a constant and changes, so it is not one."""
    g = tt.Graph("carried")
    turn = g.subgraph("turn")
    turn.input("i", (), tt.i64)
    go = turn.input("go", (), tt.bool)
    w = turn.input("w", (16, 16), tt.fp32)
    turn.output("again", go)
    turn.output("w_next", turned(turn, w))
    g.output("y", g.input("x", ("B", 16), tt.fp32) @ g.loop(turn, [g.constant(matrix(1))], trip=3))
    f = tt.compile(g, target="cpu")
    tiny = f.stages["tiny"].value
    assert [len(n.src) for n in tiny.main.nodes if isinstance(n.op, CallOp)] == [3]
    want = X @ turned_array(turned_array(turned_array(matrix(1))))
    np.testing.assert_allclose(f(x=X)["y"], want, rtol=1e-5, atol=1e-5)


def test_an_index_outside_is_a_fault_of_the_branch_that_reads_it() -> None:
    """Rows that a table does not have: the other branch runs, and this one says so when it is taken."""

    def rows(g: tt.Graph, x: tt.Tensor) -> tt.Tensor:
        return x @ (g.constant(matrix(5)).take(g.constant(np.full(16, 99)), 0) * 2.0)

    f = tt.compile(choice(layer(6), rows), target="cpu")
    want = np.tanh(X @ turned_array(matrix(6)))
    np.testing.assert_allclose(f(c=np.array(True), x=X)["y"], want, rtol=1e-5, atol=1e-6)
    with pytest.raises(tt.TatamiError, match="E1804"):
        f(c=np.array(False), x=X)
