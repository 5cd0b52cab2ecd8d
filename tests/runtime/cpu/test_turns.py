"""Loops whose number of turns only they tell: compiled code makes the turns, a block of rows after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError, diagnostic
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


GROWS = """g (int64 trip, float[N] x, float bound) => (float[M] y, float[T] sums) {
    zero = Constant <value = int64[1] {0}> ()
    yes = Constant <value = bool {1}> ()
    y, sums = Loop (trip, yes, x) <body = b (int64 i, bool go, float[L] s) => (bool again, float[K] t, float sum) {
        last = ReduceSum <keepdims = 1> (s, zero)
        turned = Tanh (last)
        t = Concat <axis = 0> (s, turned, x)
        sum = ReduceSum <keepdims = 0> (t)
        again = Less (sum, bound)
    }>
}"""
"""A state that grows by its sum and a captured value, a row a turn, and a condition in addition to the trip count."""


@pytest.mark.parametrize(("more", "most"), [(256, 1 << 12), (0, 1 << 12), (1, 3)])
def test_a_state_grows_past_its_memory(more: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for many turns, for one or two, and blocks of rows that end before and after it."""
    monkeypatch.setattr(turns, "MORE", more)
    monkeypatch.setattr(turns, "MOST_TURNS", most)
    seen = made_by(monkeypatch)
    made = model(GROWS)
    f = tt.compile(made, threads=1)
    for trip, n, bound in ((0, 3, 1e9), (1, 3, 1e9), (4, 3, 1e9), (90, 2, 1e9), (90, 2, -1e9), (7, 0, 1e9)):
        feed = {"trip": i64(trip), "x": x(n), "bound": np.array(bound, np.float32)}
        for name, wanted in zip(("y", "sums"), oracle(made, feed), strict=True):
            np.testing.assert_allclose(f(feed)[name], wanted, rtol=1e-4, atol=1e-4, err_msg=f"{name} {trip} {n} {bound}")
        assert seen[-1] == (trip if bound > 0 else 1)


SIZES_OF_OTHERS = """g (int64 trip, float[N, 2] x) => (float[A, 2] y, float[B, 2] z, float[C, 2] w) {
    yes = Constant <value = bool {1}> ()
    y, z, w = Loop (trip, yes, x, x, x)
        <body = b (int64 i, bool go, float[K, 2] s, float[L, 2] t, float[M, 2] u)
                  => (bool again, float[P, 2] s2, float[Q, 2] t2, float[R, 2] u2) {
            one = Constant <value = int64[1] {1}> ()
            end = Constant <value = int64[1] {1000000}> ()
            zero = Constant <value = int64[1] {0}> ()
            s2 = Identity (t)
            t2 = Concat <axis = 0> (s, t)
            u2 = Slice (u, one, end, zero)
            again = Identity (go)
        }>
}"""
"""Sizes K, L -> L, K + L, and one that falls by 1 until it is 0."""


def test_sizes_follow_from_those_of_other_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MORE", 3)
    seen = made_by(monkeypatch)
    made = model(SIZES_OF_OTHERS)
    f = tt.compile(made, threads=1)
    for trip in (1, 2, 11):
        feed = {"trip": i64(trip), "x": x(4, 2)}
        for name, wanted in zip("yzw", oracle(made, feed), strict=True):
            np.testing.assert_array_equal(f(feed)[name], wanted, err_msg=f"{name} {trip}")
        assert seen[-1] == trip


def test_a_size_grows_turn_by_turn_where_memory_for_more_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for twice the size does not fit; the sizes themselves do."""
    made = model(GROWS)
    f = tt.compile(made, threads=1)
    feed = {"trip": i64(40), "x": x(30), "bound": np.array(1e9, np.float32)}
    wanted = oracle(made, feed)[0]
    asked: list[int] = []

    def check(size: int) -> None:
        asked.append(size)
        if size > 2 * wanted.nbytes + 4096:
            raise TatamiError(diagnostic("OutOfMemory", "memory", "less is free", "use smaller sizes"))

    monkeypatch.setattr(turns, "MORE", 5000)
    monkeypatch.setattr(turns, "check_memory", check)
    np.testing.assert_allclose(f(feed)["y"], wanted, rtol=1e-4, atol=1e-4)
    assert max(asked) > 2 * wanted.nbytes + 4096


def test_a_size_that_an_equation_refuses_is_told_in_the_turn() -> None:
    """The third turn adds a state of 4 elements to a captured value of 3."""
    made = model(
        """g (int64 trip, float[N] x, float[3] c) => (float[M] y) {
            yes = Constant <value = bool {1}> ()
            y = Loop (trip, yes, x) <body = b (int64 i, bool go, float[L] s) => (bool again, float[K] t) {
                one = Constant <value = float[1] {1}> ()
                added = Add (s, c)
                t = Concat <axis = 0> (added, one)
                again = Identity (go)
            }>
        }"""
    )
    f = tt.compile(made, threads=1)
    feed = {"trip": i64(1), "x": x(3), "c": x(3)}
    np.testing.assert_allclose(f(feed)["y"], oracle(made, feed)[0], rtol=1e-6)
    with pytest.raises(TatamiError, match="E1304"):
        f({**feed, "trip": i64(2)})


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
