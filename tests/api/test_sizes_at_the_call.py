"""Sizes for which a value has no shape are one diagnostic, E1304, on every target: at the call, or when sizes are numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr, shape
from tatami.core.sizes.conditions import conditions, count_claims, shape_claims


def sliced(x: Any, starts: tuple[Any, ...], stops: tuple[Any, ...]) -> Any:
    return x.op("slice", starts=starts, stops=stops)


CASES: dict[str, tuple[Callable[[Any], Any], int, int, str]] = {
    "crop behind": (lambda x: x.pad([(0, -4), (0, 0)]), 3, 5, "N = 3 where at least 4 is needed"),
    "crop before": (lambda x: x.pad([(-4, 0), (0, 0)]) + 1.0, 3, 4, "N = 3 where at least 4 is needed"),
    "crop and grow": (lambda x: x.pad([(-4, 4), (0, 0)]) * 2.0, 3, 4, "N = 3 where at least 4 is needed"),
    "a pool": (lambda x: x.op("max_pool", kernel=(5, 1)), 4, 5, "N = 4 where at least 5 is needed"),
    "a pool with strides": (lambda x: x.op("avg_pool", kernel=(5, 1), stride=(4, 1)), 4, 9, "N = 4 where at least 5 is needed"),
    "a pool of rounded counts": (
        lambda x: x.op("max_pool", kernel=(5, 1), stride=(2, 1), ceil_mode=True),
        3,
        4,
        "N + 1 = 4 where at least 5 is needed (N = 3)",
    ),
    "windows apart": (lambda x: x.op("unfold", kernel=(3, 1), dilation=(2, 1)), 4, 5, "N = 4 where at least 5 is needed"),
    "parts": (lambda x: x.op("split", axis=0, sizes=("N - 4", 4))[1], 3, 4, "N - 4 = -1 where at least 0 is needed (N = 3)"),
    "a fixed part": (lambda x: sliced(x, (2, 0), (5, 3)), 4, 5, "N = 4 where at least 5 is needed"),
    "the largest": (lambda x: x.op("topk", k=expr(4), axis=0)[0], 3, 4, "N = 3 where at least 4 is needed"),
    "an empty border": (lambda x: x.pad([(1, 0), (0, 0)], mode="edge"), 0, 1, "N = 0 where at least 1 is needed"),
    "a transposed window": (
        lambda x: x.reshape((1, 1, "N", 3)).conv_transpose(
            x.graph.constant(np.ones((1, 1, 1, 1), np.float32)), padding=[(2, 2), (0, 0)]
        ),
        3,
        5,
        "N - 4 = -1 where at least 0 is needed (N = 3)",
    ),
}


def made(build: Callable[[Any], Any]) -> tt.Graph:
    g = tt.Graph("sizes")
    g.output("y", build(g.input("x", ("N", 3), tt.fp32)))
    return g


@pytest.mark.parametrize("target", ["reference", "cpu", "emulated-sm80"])
@pytest.mark.parametrize("name", CASES)
def test_sizes_without_a_shape_are_refused_at_the_call(name: str, target: str) -> None:
    build, few, enough, why = CASES[name]
    f = tt.compile(made(build), target=target)
    with pytest.raises(TatamiError) as caught:
        f(x=np.ones((few, 3), np.float32))
    fault = caught.value.diagnostics[0]
    assert (fault.code, fault.why) == ("E1304", why)
    assert fault.at, "the operation is named"
    wanted = tt.compile(made(build), target="reference")(x=np.ones((enough, 3), np.float32))["y"]
    np.testing.assert_allclose(f(x=np.ones((enough, 3), np.float32))["y"], wanted)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_numbers_without_a_shape_are_refused_at_compile_time(name: str, target: str) -> None:
    build, few, _, _ = CASES[name]
    with pytest.raises(TatamiError) as caught:
        tt.compile(made(build), sizes={"N": few}, target=target)
    assert caught.value.diagnostics[0].code == "E1304"


def test_a_step_of_building_is_refused_where_sizes_are_numbers() -> None:
    g = tt.Graph("g")
    x = g.input("x", (3, 3), tt.fp32)
    for wrong in (lambda: x.pad([(-2, -2), (0, 0)]), lambda: x.op("max_pool", kernel=(4, 1))):
        with pytest.raises(TatamiError) as caught:
            wrong()
        assert caught.value.diagnostics[0].code == "E1304"


def test_more_elements_than_64_bits_count_are_refused() -> None:
    g = tt.Graph("g")
    a, b = g.input("a", ("N", 0), tt.fp32), g.input("b", ("M", 0), tt.fp32)
    g.output("y", a.sum(1).reshape(("N", 1)).expand(("N", "M")).sum((0, 1)) + b.sum((0, 1)))
    for target in ("reference", "cpu"):
        f = tt.compile(g, target=target)
        assert f(a=np.ones((3, 0), np.float32), b=np.ones((4, 0), np.float32))["y"] == 0
        for n, why in ((2**45, "M*N + N = "), (2**50, "its shape is ")):
            with pytest.raises(TatamiError) as caught:
                f(a=np.ones((n, 0), np.float32), b=np.ones((n, 0), np.float32))
            fault = caught.value.diagnostics[0]
            assert fault.code == "E1304" and fault.why.startswith(why)


@pytest.mark.parametrize("target", ["cpu", "emulated-sm80"])
def test_a_shrink_past_its_axis_is_refused(target: str) -> None:
    shrink = {"id": "y", "uop": "SHRINK", "src": ["x"], "arg": {"lo": [2], "hi": [5], "step": [1]}}
    tensors = {name: {"dtype": "fp32", "shape": [size]} for name, size in (("x", "N"), ("y", 3))}
    f = tt.compile({"uops": [shrink], "tensors": tensors, "outputs": ["y"]}, target=target)
    assert f(x=np.arange(5, dtype=np.float32))["y"].tolist() == [2, 3, 4]
    with pytest.raises(TatamiError) as caught:
        f(x=np.ones(4, np.float32))
    assert caught.value.diagnostics[0].why == "N = 4 where at least 5 is needed"


def test_what_holds_or_follows_is_not_recorded() -> None:
    x = shape("B", "S", 64)
    claims = [
        c
        for s in (x, shape("S - 2"), shape("S - 4"), shape("(S - 4)//2 + 1"), shape("max(0, B - 1)"))
        for c in shape_claims(s, "n")
    ]
    assert [(str(e.lhs), str(e.rhs)) for e in conditions(claims)] == [("max(0, S - 4)", "S - 4")]
    assert conditions(count_claims([(shape("B", "S", 3072), "n"), (shape("B*S", 64), "m")], [x])) == ()
    counted = conditions(count_claims([(shape("B", 12, "S", "S"), "scores"), (shape("B", "S", 64), "n")], [x]))
    assert [(str(e.lhs), e.at) for e in counted] == [("max(12*B*S*S, 576460752303423488)", "scores")]


def test_a_usual_graph_has_no_condition() -> None:
    g = tt.Graph("mlp")
    x = g.input("x", ("B", 784), tt.fp32)
    w = g.input("w", (784, 128), tt.fp32, role="param")
    g.output("y", (x @ w).relu().op("softmax", axis=1))
    assert g.graph().signature.assumptions == ()
