"""Every method of Tensor and Graph, and every operation of the table, called with arguments of every kind: the answer is a
value or one diagnostic, never another exception."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ops import OPS

NO_CALL = {"__init__", "__bool__", "__iter__", "__repr__", "__hash__", "__class__", "__new__", "module", "graph"}
"""Python's own protocols, and what ends the building of a graph."""


def kinds(g: Graph) -> list[Any]:
    """Arguments: some right, most wrong somewhere."""
    other = tt.Graph("other").input("o", (2, 3), tt.fp32)
    tensors = [
        g.input(f"a{i}", shape, dtype)
        for i, (shape, dtype) in enumerate(
            [
                *(((2, 3), tt.fp32), ((3, 2), tt.fp32), ((2, 3), tt.i64), ((2, 3), tt.bool), ((), tt.fp32), ((), tt.u64)),
                *(((4,), tt.i32), (("N", "M"), tt.fp32), ((1, 4, 6, 6), tt.fp32), ((4, 4, 3, 3), tt.fp32), ((0, 3), tt.fp16)),
            ]
        )
    ]
    plain: list[Any] = [
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        -9,
        2.5,
        float("nan"),
        float("inf"),
        10**30,
        "x",
        "N",
        "N + 1",
        "",
        "(",
    ]
    nested: list[Any] = [
        [],
        (),
        [0],
        (1, 0),
        (0, 0),
        [-1, 2],
        (2.5,),
        ["N"],
        [None],
        [[1]],
        ((0, 1), (1, 2)),
        (1, 2, 3, 4, 5),
        {},
        {0},
    ]
    others: list[Any] = [object(), np.float32(1), np.int64(1), np.ones(3), np.arange(3), np.float32, "fp16", tt.i32, tt.bool]
    others += [
        slice(1, None),
        slice(None, None, 0),
        slice("x", 2.5),
        Ellipsis,
        expr("N"),
        len,
        1j,
        b"x",
        "add",
        "wrap",
        "ij->i",
    ]
    return [*tensors, *tensors, *plain, *nested, *others, other]


def tried(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except TatamiError as error:
        d = error.diagnostics[0]
        assert d.at, what
        assert d.why, what
        assert d.suggestion, what
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}") from error


def arguments(method: Callable[..., Any], r: random.Random, pool: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """One of `pool` for every parameter that has to be given, and for some of the others."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for p in list(inspect.signature(method).parameters.values()):
        if p.kind == p.VAR_POSITIONAL:
            positional += r.choices(pool, k=r.randint(0, 3))
        elif p.kind == p.VAR_KEYWORD:
            if r.random() < 0.3:
                named[r.choice(["ceil_mode", "scale", "alpha", "nonsense", "axis"])] = r.choice(pool)
        elif p.default is p.empty and p.kind != p.KEYWORD_ONLY:
            positional.append(r.choice(pool))
        elif p.name in ("at", "node"):  # the origin of a node, which importers give
            continue
        elif p.default is p.empty or r.random() < 0.4:
            named[p.name] = r.choice(pool)
    return positional, named


def methods(kind: type) -> list[str]:
    return sorted(n for n in dir(kind) if callable(getattr(kind, n)) and (not n.startswith("_") or n in OPERATORS))


OPERATORS = {n for n in dir(Tensor) if n.startswith("__") and n in dir(int) and n not in NO_CALL} | {
    "__getitem__",
    "__matmul__",
}
OPERATORS -= {
    n for n in OPERATORS if n in dir(object) and n not in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
}


@pytest.mark.parametrize("name", [n for n in methods(Tensor) if n not in NO_CALL])
def test_a_method_of_a_tensor(name: str) -> None:
    for seed in range(5):
        r = random.Random(f"{name} {seed}")
        g = tt.Graph("g")
        pool = kinds(g)
        for _ in range(12):
            x = pool[r.randint(0, 10)]
            given, named = arguments(getattr(x, name), r, pool)
            tried(lambda: getattr(x, name)(*given, **named), f"{x!r}.{name}(*{given!r}, **{named!r})")  # noqa: B023


@pytest.mark.parametrize("name", [n for n in methods(Graph) if n not in NO_CALL])
def test_a_method_of_a_graph(name: str) -> None:
    for seed in range(5):
        r = random.Random(f"{name} {seed}")
        g = tt.Graph("g")
        pool = kinds(g)
        for _ in range(8):
            given, named = arguments(getattr(g, name), r, pool)
            tried(lambda: getattr(g, name)(*given, **named), f"g.{name}(*{given!r}, **{named!r})")  # noqa: B023


@pytest.mark.parametrize("name", OPS)
def test_an_operation_of_the_table(name: str) -> None:
    fields = list(OPS[name].attrs.__annotations__)
    for seed in range(4):
        r = random.Random(f"{name} {seed}")
        g = tt.Graph("g")
        pool = kinds(g)
        for _ in range(12):
            right = [pool[r.randint(0, 10)] for _ in range(OPS[name].least + r.randint(0, 1))]
            given = right if r.random() < 0.7 else r.choices(pool, k=r.randint(0, 4))
            named = {f: r.choice(pool) for f in fields if r.random() < 0.7}
            tried(lambda: g.op(name, *given, **named), f"g.op({name!r}, *{given!r}, **{named!r})")  # noqa: B023
