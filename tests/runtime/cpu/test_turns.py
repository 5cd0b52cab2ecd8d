"""Loops whose number of turns only they tell: compiled code makes the turns, a block of rows after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.runtime import python_runs
from tatami.runtime.cpu import turns
from tests.onnx.subgraphs.test_control import i64, model, oracle, x

UNTIL = """g (int64 trip, bool yes, float[N, 4] x, float bound) => (float[N, 4] a, float[N, 4] b, float[T, N, 4] all, float[T] sums) {
    a, b, all, sums = Loop (trip, yes, x, x)
        <body = body (int64 i, bool go, float[N, 4] s, float[N, 4] t)
                  => (bool again, float[N, 4] u, float[N, 4] v, float[N, 4] row, float sum) {
            f = Cast <to = 1> (i)
            u = Add (t, f)
            v = Sub (s, x)
            row = Mul (u, v)
            sum = ReduceSum <keepdims = 0> (u)
            again = Less (f, bound)
        }>
}"""
"""Two states that take turns, a captured value, rows of two shapes, and a condition in addition to the trip count."""


def made_by(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of turns that compiled code makes from now on, loop by loop."""
    seen: list[int] = []

    def run(*arguments: Any) -> turns.Turned:
        made = turns.run_turns(*arguments)
        seen.append(made.turns)
        return made

    monkeypatch.setattr(python_runs, "run_turns", run)
    return seen


@pytest.mark.parametrize("most", [1, 3, 1 << 12])
def test_turns_end_with_the_condition_or_the_count(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of turns a block has room for: no turn, one, as many as a block, one more, many."""
    monkeypatch.setattr(turns, "MOST_TURNS", most)
    seen = made_by(monkeypatch)
    made = model(UNTIL)
    f = tt.compile(made, threads=1)
    cases = [(trip, bound, True) for trip in (1, 2, 3, 4, 50) for bound in (-1.0, 2.0, 6.0, 1e3)]
    for trip, bound, yes in [*cases, (0, 2.0, True), (5, 2.0, False)]:
        feed = {"trip": i64(trip), "yes": np.array(yes), "x": x(2, 4), "bound": np.array(bound, np.float32)}
        got = f(feed)
        count = min(trip, max(int(bound) + 1, 1)) if yes else 0
        for name, wanted in zip(("a", "b", "all", "sums"), oracle(made, feed), strict=True):
            if count or name in ("a", "b"):
                np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-4, err_msg=f"{name} {trip} {bound}")
        assert seen.pop() == count and got["all"].shape == (count, 2, 4)


def test_what_a_loop_gave_stays_when_it_runs_again() -> None:
    f = tt.compile(model(UNTIL), threads=1)
    feed = {"trip": i64(3), "yes": np.array(True), "x": x(2, 4), "bound": np.array(10, np.float32)}
    first = {n: (a, np.array(a)) for n, a in f(feed).items()}
    f({**feed, "x": x(2, 4), "trip": i64(5)})
    for array, before in first.values():
        np.testing.assert_array_equal(array, before)


def test_a_state_that_grows_is_made_turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = made_by(monkeypatch)
    made = model(
        """g (int64 trip, float[N] x) => (float[M] y) {
            y = Loop (trip, "", x) <body = b (int64 i, bool go, float[L] s) => (bool again, float[K] t) {
                again = Identity (go)
                t = Concat <axis = 0> (s, x)
            }>
        }"""
    )
    f = tt.compile(made, threads=1)
    for trip in (0, 1, 4):
        feed = {"trip": i64(trip), "x": x(3)}
        np.testing.assert_array_equal(f(feed)["y"], oracle(made, feed)[0])
    assert not seen


def test_a_fault_in_a_turn_is_told() -> None:
    """The fourth turn reads element 3 of 3."""
    f = tt.compile(
        model(
            """g (int64 trip, bool yes, float[N] x) => (float[T] all) {
                all = Loop (trip, yes) <body = b (int64 i, bool go) => (bool again, float row) {
                    row = Gather (x, i)
                    again = Identity (go)
                }>
            }"""
        ),
        threads=1,
    )
    values = x(3)
    np.testing.assert_array_equal(f({"trip": i64(3), "yes": np.array(True), "x": values})["all"], values)
    with pytest.raises(TatamiError, match="E1804"):
        f({"trip": i64(4), "yes": np.array(True), "x": values})
