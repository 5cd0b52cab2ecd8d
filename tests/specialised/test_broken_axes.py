"""A call that breaks an assumption fixes the axes that it is about: one further program serves all other sizes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.signature import Equation, Input, Signature
from tatami.specialised.adaptive import AdaptiveFunction
from tatami.specialised.broken_axes import broken_axes
from tests.onnx.test_models import FLOAT, model, x


def of(*equations: tuple[str, str], **inputs: tuple[int | str, ...]) -> Signature:
    ports = tuple(Input(n, DType.fp32, shape(*s)) for n, s in inputs.items())
    return Signature(ports, (), tuple(Equation(expr(a), expr(b)) for a, b in equations))


def test_axes_of_one_name_and_two_sizes() -> None:
    signature = of(a=("B", "N", "W"), b=("B", "N", "W"), c=("W", 3))
    assert broken_axes(signature, {"a": (1, 5, 256), "b": (1, 5, 8), "c": (8, 3)}) == {("a", 2), ("b", 2), ("c", 0)}


def test_axes_of_an_equation_that_does_not_hold() -> None:
    signature = of(("B", "K"), a=("B", "N"), b=("K", "M"))
    assert broken_axes(signature, {"a": (1, 5), "b": (2, 7)}) == {("a", 0), ("b", 0)}
    assert broken_axes(signature, {"a": (2, 5), "b": (2, 7)}) == frozenset()


def test_all_open_axes_are_no_part_of_them() -> None:
    assert broken_axes(of(a=("W", 4), b=("W", 3)), {"a": (1, 4), "b": (2, 3)}) == frozenset()


def test_another_size_of_the_other_axes_compiles_nothing() -> None:
    """Two inputs are said to have one width and have two; the first axis stays open."""
    nodes = [helper.make_node("ReduceSum", ["b", "last"], ["s"], keepdims=1), helper.make_node("Mul", ["a", "s"], ["y"])]
    last = helper.make_tensor("last", 7, [1], [1])
    made = model(nodes, [("a", FLOAT, ["N", "W"]), ("b", FLOAT, ["N", "W"])], [("y", FLOAT, [None, None])], [last])
    f = tt.compile(made, threads=1)
    assert isinstance(f, AdaptiveFunction) and f.shape_set is not None
    for n, w, v in ((4, 6, 6), (4, 6, 2), (7, 6, 2), (1, 6, 2), (5, 3, 3), (3, 5, 2)):
        a, b = x(n, w), x(n, v)
        np.testing.assert_allclose(f(a=a, b=b)["y"], a * b.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)
    assert [[str(s) for s in i.shape] for p in f.shape_set.programs.values() for i in p.function.arguments] == [
        ["N", "6"], ["N", "2"], ["N", "5"], ["N", "2"],
    ]  # fmt: skip


def test_the_last_resort_is_a_program_for_all_sizes_of_the_call() -> None:
    """A size that is 1 broadcasts another that no assumption names: fixing the first is not enough where the model is wrong."""
    made = model([helper.make_node("Add", ["a", "b"], ["y"])], [("a", FLOAT, ["N", "W"]), ("b", FLOAT, ["M", "W"])], [("y", FLOAT, [None, None])])  # fmt: skip
    f = tt.compile(made, threads=1)
    for n, m, w in ((4, 4, 3), (4, 1, 3), (6, 1, 5), (1, 3, 2)):
        a, b = x(n, w), x(m, w)
        np.testing.assert_allclose(f(a=a, b=b)["y"], a + b)
    with pytest.raises(TatamiError, match="E1304"):
        f(a=x(2, 3), b=x(3, 3))
