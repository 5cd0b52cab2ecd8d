"""Reads at positions that differ from lane to lane: their indices are computed in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.loop.verify import verify as verify_loops


def compiled(bounds: str, x: np.ndarray, at: np.ndarray, more: int, dtype: Any = tt.fp32) -> np.ndarray:
    """x[row, at + more]: an index that is computed where it is used."""
    g = tt.Graph("gathered")
    v, i = g.input("x", x.shape, dtype), g.input("at", at.shape, tt.i64)
    g.output("y", v.gather(1, i + more, bounds))
    f = tt.compile(g)
    assert verify_loops(f.stages["loop"].value) == []
    text = f.stages["loop"].text
    assert ("lane" in text) != (bounds in ("clamp", "assume") and "*1 : " in text)  # element by element where it is looked at
    return f(x=x, at=at)["y"]


@pytest.mark.parametrize("columns", [8, 21, 37])
@pytest.mark.parametrize("bounds", ["wrap", "clamp", "zero", "error"])
def test_what_is_outside_follows_the_policy(bounds: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((5, 11)).astype(np.float32)
    low, high = {"wrap": (-11, 11), "error": (0, 11)}.get(bounds, (-30, 30))
    at = rng.integers(low - 3, high - 3, (5, columns))
    place = at + 3
    inside = (place >= 0) & (place < 11)
    want = np.take_along_axis(x, place % 11 if bounds == "wrap" else place.clip(0, 10), 1)
    assert np.array_equal(compiled(bounds, x, at, 3), np.where(inside, want, 0) if bounds == "zero" else want)


def test_one_lane_outside_is_a_fault() -> None:
    x, at = np.ones((2, 11), np.float32), np.zeros((2, 16), np.int64)
    at[1, 13] = 20
    for bounds in ("wrap", "error"):
        with pytest.raises(tt.TatamiError):
            compiled(bounds, x, at, 1)


@pytest.mark.parametrize("dtype", ["fp64", "fp16", "i32", "u8", "bool"])
def test_of_every_width(dtype: str) -> None:
    rng = np.random.default_rng(3)
    kind = {"fp64": np.float64, "fp16": np.float16, "i32": np.int32, "u8": np.uint8, "bool": np.bool_}[dtype]
    x: np.ndarray = rng.integers(0, 2, (4, 19)).astype(kind)
    at = rng.integers(0, 18, (4, 21))
    assert np.array_equal(compiled("wrap", x, at, 1, getattr(tt, dtype)), np.take_along_axis(x, at + 1, 1))


def test_floats_that_are_made_places_without_data_are_made_so_once() -> None:
    """The positions are constants: a conversion to an integer saturates, and positions of 64 bits are made one by one."""
    g = tt.Graph("half")
    x = g.input("x", (3, 16), tt.fp32)
    at = (g.one("iota", shape=(32,), axis=0).cast(tt.fp32) * 0.5).cast(tt.i64)
    g.output("y", x.take(at, axis=1))
    f = tt.compile(g)
    assert "cast(" not in f.stages["region"].text.split("program setup")[0]
    given = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    assert np.array_equal(f(x=given)["y"], given.repeat(2, 1))


def test_an_axis_of_nothing_is_not_read() -> None:
    g = tt.Graph("nothing")
    x, at = g.input("x", ("N",), tt.fp32), g.input("at", (16,), tt.i64)
    g.output("y", x.take(at + 1, axis=0, bounds="clamp"))
    f = tt.compile(g)
    text = f.stages["loop"].text
    assert text.count("p1[") == text.count("if 0 <= ")
    at_ = np.arange(-8, 8)
    assert np.array_equal(f(x=np.arange(3, dtype=np.float32), at=at_)["y"], (at_ + 1).clip(0, 2).astype(np.float32))
    assert not f(x=np.zeros(0, np.float32), at=at_)["y"].any()
