"""A vector loop is cut where conditions change, and asks nothing in its parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.expr import expr, var
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.emit.ranges import MOST, comparison, cuts
from tatami.loop.verify import verify as verify_loops
from tatami.region.ir import Binary, Const, Index, RegionExpr, Select, Within
from tatami.runtime.machine.host import detect_host

COLUMNS = (1, 3, 8, 13, 37)


def loops(stmts: tuple[Any, ...]) -> Iterator[loop.For]:
    for s in stmts:
        if isinstance(s, loop.For):
            yield s
        for part in ("body", "then", "otherwise", "prologue"):
            yield from loops(getattr(s, part, ()))


def compiled(make: Any, *arrays: np.ndarray) -> tuple[np.ndarray, list[loop.For]]:
    """The kernels' result, and the vector loops of the program."""
    g = tt.Graph("ranges")
    names = [f"x{i}" for i in range(len(arrays))]
    g.output("y", make(*(g.input(n, a.shape, DType[a.dtype.name.replace("float", "fp")]) for n, a in zip(names, arrays))))
    f = tt.compile(g)
    stage = f.stages["loop"].value
    assert verify_loops(stage) == []
    return f(dict(zip(names, arrays)))["y"], [x for k in stage.main.kernels.values() for x in loops(k.body) if x.simd]


def joined(*parts: Any) -> Any:
    return parts[0].graph.concat(parts, axis=1)


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def asks(x: loop.For) -> bool:
    return any(isinstance(s, loop.If) for s in x.body)


@pytest.mark.parametrize("left", COLUMNS)
@pytest.mark.parametrize("right", COLUMNS)
def test_parts_end_to_end(left: int, right: int) -> None:
    a, b, c = drawn(5, left), drawn(5, right), drawn(5, 2)
    got, vectors = compiled(joined, a, b, c)
    assert np.array_equal(got, np.concatenate([a, b, c], 1))
    assert not any(map(asks, vectors))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("columns", [5, 19, 64])
def test_borders(mode: str, columns: int) -> None:
    x = drawn(2, 6, columns)
    got, vectors = compiled(lambda v: v.pad([(0, 0), (2, 1), (3, 4)], mode=mode).relu(), x)
    want: Any = np.pad(x, [(0, 0), (2, 1), (3, 4)], mode=mode)  # type: ignore[call-overload]
    assert np.array_equal(got, np.maximum(want, 0))
    assert mode == "constant" or columns < 2 * detect_host().lanes or vectors  # a loop of one vector is none


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rolls(dtype: Any) -> None:
    x = drawn(3, 41, dtype=dtype)
    got, vectors = compiled(lambda v: v.roll(9, 1), x)
    assert np.array_equal(got, np.roll(x, 9, 1)) and not any(map(asks, vectors))


def test_rows_turned_by_halves_are_two_plain_loops() -> None:
    x, c = drawn(7, 64), drawn(7, 64)
    got, vectors = compiled(lambda v, w: v + joined(-v[:, 32:], v[:, :32]) * w, x, c)
    want = x + np.concatenate([-x[:, 32:], x[:, :32]], 1) * c
    assert np.allclose(got, want, atol=1e-6)
    assert len(vectors) == 2 and not any(map(asks, vectors))


def index(text: str) -> Index:
    return Index(expr(text), DType.i64)


def holds(e: RegionExpr, at: dict[str, int]) -> bool:
    if isinstance(e, Within):
        return all(0 <= evaluate(g.index, at) < evaluate(g.size, at) for g in e.guards)
    g = comparison(e)
    assert g is not None
    return 0 <= evaluate(g.index, at) < evaluate(g.size, at)


@pytest.mark.parametrize("text", ["i - 3", "2*i - 7", "40 - 3*i", "-i + 11", "5*i"])
@pytest.mark.parametrize("fn", ["lt", "le", "gt", "ge", "within"])
def test_between_cuts_nothing_changes(text: str, fn: str) -> None:
    number = Const(9, DType.i64)
    e: RegionExpr = Within((Guard(expr(text), expr(9)),)) if fn == "within" else Binary(fn, index(text), number)
    found = cuts([Select(e, number, number)], {"a": var("i")}, "i", 30, {})
    changes = [i for i in range(1, 30) if holds(e, {"i": i}) != holds(e, {"i": i - 1})]
    assert set(changes) <= set(found) and len(found) <= 2


def test_what_moves_with_two_axes_or_changes_often_is_not_cut() -> None:
    assert cuts([Within((Guard(expr("i + j - 3"), expr(9)),))], {}, "i", 30, {}) == ()
    many = [Within((Guard(expr(f"i - {4 * k}"), expr(2)),)) for k in range(1, MOST)]
    assert cuts(many, {}, "i", 30, {}) == () and cuts(many[:3], {}, "i", 30, {}) == (4, 6, 8, 10, 12, 14)


LAST = 2**63 - 1


@pytest.mark.parametrize(
    ("count", "dtype", "fn", "number"),
    [(8, "i64", "lt", LAST), (8, "i64", "ge", -LAST - 1), (300, "u8", "lt", 10), (300, "i8", "ge", 0), (8, "i64", "lt", -LAST)],
)
def test_numbers_at_the_ends_and_indices_that_wrap_around(count: int, dtype: str, fn: str, number: int) -> None:
    def make(x: Any, y: Any) -> Any:
        return x.graph.iota((count,), 0, getattr(tt, dtype)).one(fn, number).where(x, y)

    x, y = drawn(count), -drawn(count)
    at = np.arange(count).astype({"i64": np.int64, "u8": np.uint8, "i8": np.int8}[dtype])
    assert np.array_equal(compiled(make, x, y)[0], np.where(at < number if fn == "lt" else at >= number, x, y))


def test_a_size_that_may_be_0_decides_nothing() -> None:
    g = tt.Graph("sizes")
    n = g.input("n", ("N",), tt.fp32)
    x, y = g.input("x", (4,), tt.fp32), g.input("y", (4,), tt.fp32)
    at = g.iota((4,)) + g.size_of(n.shape[0]).expand((4,))
    g.output("y1", at.one("ge", 1).where(x, y))
    f = tt.compile(g)
    given = {"x": drawn(4), "y": -drawn(4)}
    for size in (0, 1, 3):
        got = f(n=np.zeros(size, np.float32), **given)["y1"]
        assert np.array_equal(got, np.where(np.arange(4) + size >= 1, given["x"], given["y"]))
