"""Values of wrong types in each public argument: accepted as what it says, or one diagnostic, never an error of Python's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.api import CompiledFunction
from tatami.core.diagnostic import TatamiError

X = np.ones((2, 4), np.float32)
TEXT = "graph main(x: f32[3]) -> f32[3] { return x.relu() }"
VALUES: list[Any] = [
    1.5, True, None, "x", "", b"x", [], {}, object(), -1, 10**30, float("nan"), np.float32(2), np.int64(2), (1, 2), [1.5],
    {"a": 1}, {1: 2}, lambda *_: 0, "a\0b",
]  # fmt: skip
FINE: dict[str, Callable[[Any], bool]] = {
    "sizes": lambda v: v is None or v == {},
    "sizes of B": lambda v: isinstance(v, np.int64),
    "sizes in a list": lambda v: isinstance(v, np.int64) or v == (1, 2),
    "sizes in a range": lambda v: isinstance(v, np.int64),
    "target": lambda v: v is None,
    "precision": lambda v: v is None,
    "threads": lambda v: v is None,
    "load threads": lambda v: v is None,
    "decisions": lambda v: v is None or v == {},
    "trust": lambda v: v is True,
    "load trust": lambda v: v is True,
    "parse trust": lambda v: v is True,
    "progress": lambda v: v is None or v is True or callable(v),
    "max_specialisations": lambda v: v is None or v in (2, 10**30),
    "example_inputs": lambda v: v is None,
    "dynamic_shapes": lambda v: v is None,
    "constants": lambda v: v is None or v in ({}, {"a": 1}),
    "parse name": lambda v: isinstance(v, str),
    "Graph": lambda v: isinstance(v, str),
    "out": lambda v: v is None or v == {},
}
"""The values that an argument takes; of all others it says one thing that is wrong."""


def graph() -> tt.Graph:
    g = tt.Graph("g")
    g.output("y", g.input("x", ("B", 4), tt.fp32).relu())
    return g


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledFunction, Path]:
    f = tt.compile(graph())
    return f, f.save(tmp_path_factory.mktemp("saved") / "p.tatami")


def calls(v: Any, f: CompiledFunction, saved: Path) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in ("sizes", "target", "precision", "threads", "decisions", "trust", "progress", "max_specialisations"):
        yield name, lambda name=name: tt.compile(graph(), **{name: v})
    for name in ("example_inputs", "dynamic_shapes"):
        yield name, lambda name=name: tt.compile(graph(), **{name: v})
    yield "sizes of B", lambda: tt.compile(graph(), sizes={"B": v})
    yield "sizes in a list", lambda: tt.compile(graph(), sizes={"B": [v]})
    yield "sizes in a range", lambda: tt.compile(graph(), sizes={"B": (1, v, 3)})
    yield "model", lambda: tt.compile(v)
    yield "open_model", lambda: tt.open_model(v)
    yield "load", lambda: tt.load(v)
    yield "load threads", lambda: tt.load(saved, threads=v)
    yield "load trust", lambda: tt.load(saved, trust=v)
    yield "parse", lambda: tt.parse(v)
    yield "constants", lambda: tt.parse(TEXT, v)
    yield "parse name", lambda: tt.parse(TEXT, name=v)
    yield "parse trust", lambda: tt.parse(TEXT, trust=v)
    yield "decompile", lambda: tt.decompile(v)
    yield "Graph", lambda: tt.Graph(v)
    yield "input", lambda: f(x=v)
    yield "arguments", lambda: f(v)
    yield "save", lambda: f.save(v)
    yield "fetch", lambda: f.fetch(v, x=X)
    yield "stage", lambda: f.stages[v]
    yield "out", lambda: f(x=X, out=v)


@pytest.mark.parametrize("place", range(len(VALUES)), ids=[f"{v!r:.16}".replace("\0", "0") for v in VALUES])
def test_a_wrong_type_is_one_diagnostic(place: int, made: tuple[CompiledFunction, Path]) -> None:
    value = VALUES[place]
    for name, call in calls(value, *made):
        try:
            call()
        except TatamiError as error:
            assert len(error.diagnostics) == 1 and error.diagnostics[0].kind != "InternalError", (name, value, error)
            continue
        assert FINE.get(name, lambda _: False)(value), f"{name}={value!r} was accepted"


def test_trust_is_no_word() -> None:
    with pytest.raises(TatamiError) as error:
        tt.open_model({}, trust="no")
    assert (error.value.diagnostics[0].kind, error.value.diagnostics[0].at) == ("InvalidAttribute", "trust")
