"""Elements chosen along one axis by an index that is shorter than the data along the others, some of an open size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError

DATA = np.arange(18, dtype=np.float32).reshape(3, 6)
INDEX = np.array([[0, 1, 2, 0], [1, 0, -1, 2]], np.int64)


def gathered(data: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
    g = tt.Graph("gather")
    g.output("y", g.input("x", data, tt.fp32).gather(0, g.input("i", index, tt.i64)))
    return tt.compile(g, threads=1)


def scattered(op: str, data: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
    g = tt.Graph("scatter")
    x, i, u = g.input("x", data, tt.fp32), g.input("i", index, tt.i64), g.input("u", index, tt.fp32)
    g.output("y", x.scatter(0, i, u, op))
    return tt.compile(g, threads=1)


SHAPES: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [
    ((3, 6), (2, 4)),
    ((3, "N"), (2, 4)),
    ((3, "N"), ("K", "M")),
    (("R", "N"), ("K", 4)),
    ((3, 6), ("K", "M")),
]


@pytest.mark.parametrize(("data", "index"), SHAPES, ids=str)
def test_a_shorter_index_gathers(data: tuple[Any, ...], index: tuple[Any, ...]) -> None:
    got = gathered(data, index)(x=DATA, i=INDEX)["y"]
    assert np.array_equal(got, np.take_along_axis(DATA[:, :4], INDEX, 0))


@pytest.mark.parametrize("op", ["set", "add", "max"])
@pytest.mark.parametrize(("data", "index"), SHAPES, ids=str)
def test_a_shorter_index_scatters(data: tuple[Any, ...], index: tuple[Any, ...], op: str) -> None:
    u = np.arange(8, dtype=np.float32).reshape(2, 4) + 3
    want = DATA.copy()
    for r, c in np.ndindex(2, 4):
        at = INDEX[r, c], c
        want[at] = {"set": u[r, c], "add": want[at] + u[r, c], "max": max(want[at], u[r, c])}[op]
    assert np.array_equal(scattered(op, data, index)(x=DATA, i=INDEX, u=u)["y"], want)


@pytest.mark.parametrize(("data", "index"), SHAPES[1:4], ids=str)
def test_a_longer_index_is_refused_at_the_call(data: tuple[Any, ...], index: tuple[Any, ...]) -> None:
    x = DATA[:, :3].copy()
    with pytest.raises(TatamiError, match=r"E1304.*gather"):
        gathered(data, index)(x=x, i=INDEX)
    with pytest.raises(TatamiError, match=r"E1304.*scatter"):
        scattered("add", data, index)(x=x, i=INDEX, u=np.zeros((2, 4), np.float32))


def test_an_index_that_is_always_longer_is_refused_at_once() -> None:
    for make in (gathered, lambda d, i: scattered("set", d, i)):
        with pytest.raises(TatamiError, match=r"E1001.*axis 1 of the index"):
            make(("R", 3), (2, 4))


@pytest.mark.parametrize(
    ("old", "new", "sizes"),
    [
        (("s", "b", 4), (7, "2*b", 2), {"s": 7, "b": 3}),
        (("b", "s", 6), ("b", 5, 3, 4), {"b": 2, "s": 10}),
        (("s", "b", 4), ("2*c", "b", 2), {"s": 6, "b": 3, "c": 6}),
    ],
    ids=str,
)
def test_a_reshape_that_says_what_an_open_axis_is(old: tuple[Any, ...], new: tuple[Any, ...], sizes: dict[str, int]) -> None:
    """The equation has a common factor, of numbers or of symbols."""
    g = tt.Graph("reshape")
    x = g.input("x", old, tt.fp32)
    c = g.input("c", ("c",), tt.fp32) if "c" in sizes else None
    y = (x * 2.0).reshape(new)
    g.output("y", y if c is None else y + c.sum().expand(y.shape))
    f = tt.compile(g, threads=1)
    shape = tuple(sizes.get(s, s) for s in old)
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    given = {"x": array} | ({"c": np.zeros(sizes["c"], np.float32)} if c is not None else {})
    got = f(**given)["y"]
    assert np.array_equal(got, (array * 2).reshape(got.shape))
    shorter = np.concatenate([array, array[:1]]) if old[0] == "s" else array[:, :-1].copy()
    with pytest.raises(TatamiError, match=r"E130[0-9]"):
        f(**{**given, "x": shorter})
