"""Calls of the same shapes take a short way, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def function() -> Any:
    g = tt.Graph("f")
    x, y = g.input("x", ("B", 4), tt.fp32), g.input("y", ("B", 4), tt.fp32)
    g.output("sum", x + y)
    g.output("product", (x * y).cast(tt.bf16))
    return tt.compile(g, threads=1)


def settled(function: Any) -> Callable[..., dict[str, Any]]:
    """The function after calls of one shape."""
    for _ in range(3):
        function(x=X, y=X)
    assert function._steady is not None
    return function


def general_calls(function: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    take = function._take
    monkeypatch.setattr(function, "_take", lambda *a: (seen.append(1), take(*a))[1])
    return seen


def test_the_same_shapes_again_take_the_short_way(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = settled(function)
    seen = general_calls(function, monkeypatch)
    for values in ({"x": X, "y": X}, {"y": X + 1, "x": X * 2}):
        for found in (f(values), f(**values)):
            np.testing.assert_array_equal(found["sum"], values["x"] + values["y"])
            np.testing.assert_array_equal(found["product"].astype(np.float32), values["x"] * values["y"])
    assert not seen


@pytest.mark.parametrize(
    "x",
    [
        np.ones((5, 4), np.float32),
        np.asfortranarray(X),
        np.ones((3, 8), np.float32)[:, ::2],
        X.astype(">f4"),
        np.frombuffer(b"\0" * 49, np.uint8)[1:].view(np.float32).reshape(3, 4),
    ],
    ids=["another shape", "columns first", "a stride", "another byte order", "read-only and not aligned"],
)
def test_other_arrays_take_the_general_way(function: Any, monkeypatch: pytest.MonkeyPatch, x: np.ndarray) -> None:
    f = settled(function)
    seen = general_calls(function, monkeypatch)
    y = np.ones(x.shape, np.float32)
    np.testing.assert_array_equal(f(x=x, y=y)["sum"], x + y)
    assert seen


@pytest.mark.parametrize("given", [{"x": X}, {"x": X, "z": X}, {"x": X, "y": X.astype(np.float64)}, {"x": X, "y": X[0]}])
def test_wrong_arguments_are_said_as_ever(function: Any, given: dict[str, Any]) -> None:
    f = settled(function)
    with pytest.raises(TatamiError):
        f(given)


def test_the_memory_told_is_that_of_the_last_call(function: Any) -> None:
    f = settled(function)
    one = f(x=X, y=X)
    two = f(x=X, y=X)
    assert not np.shares_memory(one["sum"], two["sum"])
    function.bind(x=np.ones((7, 4), np.float32), y=np.ones((7, 4), np.float32))
    assert function._steady is None
