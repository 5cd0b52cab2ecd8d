"""Wrong calls of the Python API: each is one diagnostic with a place and a way out, never another exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError

X = np.ones((2, 8), np.float32)


def mlp() -> Any:
    g = tt.Graph("g")
    x = g.input("x", ("B", 8), tt.fp32)
    g.output("y", (x @ g.constant(np.ones((8, 4), np.float32))).relu())
    return g


@pytest.fixture(scope="module")
def f() -> Any:
    return tt.compile(mlp())


def refused(make: Callable[[], Any], kind: str) -> None:
    with pytest.raises(TatamiError) as error:
        make()
    d = error.value.diagnostics[0]
    assert d.kind == kind, str(d)
    assert d.at
    assert d.why
    assert d.suggestion


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nothing": (lambda f: f(), "InputMismatch"),
    "another name": (lambda f: f(x=X, q=X), "InputMismatch"),
    "another rank": (lambda f: f(x=X[0]), "InputMismatch"),
    "another size": (lambda f: f(x=X[:, :3]), "AxisAlignmentMismatch"),
    "a string": (lambda f: f(x="abc"), "InputMismatch"),
    "None": (lambda f: f(x=None), "InputMismatch"),
    "objects": (lambda f: f(x=np.array([[None] * 8])), "InputMismatch"),
    "ragged lists": (lambda f: f(x=[[1.0], [1.0, 2.0]]), "InputMismatch"),
    "complex numbers": (lambda f: f(x=X.astype(np.complex64)), "InputMismatch"),
    "too many": (lambda f: f(X, X), "InputMismatch"),
    "a mapping beside an array": (lambda f: f({"x": X}, X), "InputMismatch"),
    "given twice": (lambda f: f({"x": X}, x=X), "InputMismatch"),
    "given twice, once by its place": (lambda f: f(X, x=X), "InputMismatch"),
    "another output": (lambda f: f(x=X, out={"z": X}), "InputMismatch"),
    "an output of another shape": (lambda f: f(x=X, out={"y": np.ones((3, 4), np.float32)}), "InputMismatch"),
    "an output of another dtype": (lambda f: f(x=X, out={"y": np.ones((2, 4))}), "InputMismatch"),
    "an unknown node": (lambda f: f.fetch("nope", x=X), "UnknownName"),
    "an unknown stage": (lambda f: f.stages["nope"], "UnknownName"),
    "binding another rank": (lambda f: f.bind(x=X[0]), "InputMismatch"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_of_a_function(name: str, f: Any) -> None:
    call, kind = CALLS[name]
    refused(lambda: call(f), kind)
    assert (f(x=X)["y"] == 8).all()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"target": "tpu"}, "UnknownTarget"),
        ({"target": 5}, "UnknownTarget"),
        ({"target": {"name": "mine"}}, "InvalidDocument"),
        ({"sizes": {"Q": 3}}, "UnboundSymbol"),
        ({"sizes": {"B": -3}}, "InvalidSymbol"),
        ({"sizes": {"B": "x"}}, "InvalidSymbol"),
        ({"sizes": {"B": (1, 2)}}, "InvalidSymbol"),
        ({"sizes": {"B": 10**30}}, "InvalidSymbol"),
        ({"threads": 0}, "InvalidAttribute"),
        ({"threads": "x"}, "InvalidAttribute"),
        ({"threads": 10**9}, "InvalidAttribute"),
        ({"precision": "fp8"}, "InvalidAttribute"),
        ({"decisions": {"a": 1}}, "InvalidDocument"),
        ({"decisions": [1]}, "InvalidDocument"),
        ({"decisions": {"plans": {"": 3}}}, "InvalidDocument"),
        ({"decisions": {"plans": {"": {"kind": "nope"}}}}, "InvalidDocument"),
        ({"decisions": "nothing.json"}, "FileUnreadable"),
    ],
    ids=str,
)
def test_a_wrong_option_of_compile(options: dict[str, Any], kind: str) -> None:
    refused(lambda: tt.compile(mlp(), **options), kind)


@pytest.mark.parametrize(
    ("model", "kind"),
    [(None, "UnknownFormat"), (3, "UnknownFormat"), ("x\x00.onnx", "FileUnreadable"), ({}, "InvalidDocument")],
)
def test_what_is_no_model(model: Any, kind: str) -> None:
    refused(lambda: tt.compile(model), kind)


BUILDING: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a shape that is a number": (lambda g, a: g.input("b", 5, tt.fp32), "InvalidSymbol"),
    "a negative size": (lambda g, a: g.input("b", (-5,), tt.fp32), "InvalidSymbol"),
    "a size that is no integer": (lambda g, a: g.input("b", (2.5,), tt.fp32), "InvalidSymbol"),
    "half an expression": (lambda g, a: g.input("b", ("N*",), tt.fp32), "InvalidSymbol"),
    "division by zero": (lambda g, a: g.input("b", ("N//0",), tt.fp32), "InvalidSymbol"),
    "an empty name": (lambda g, a: g.input("", (2,), tt.fp32), "DuplicateId"),
    "a name that is no string": (lambda g, a: g.input(3, (2,), tt.fp32), "InvalidAttribute"),
    "a dtype that is none": (lambda g, a: g.input("b", (2,), "float12"), "UnsupportedDType"),
    "adding a string": (lambda g, a: a + "x", "InvalidAttribute"),
    "adding None": (lambda g, a: a + None, "InvalidAttribute"),
    "a tensor of another graph": (lambda g, a: a + tt.Graph("h").input("z", (2, 3), tt.fp32), "UnknownValue"),
    "constants that are words": (lambda g, a: g.constant(["a"]), "UnsupportedDType"),
    "two open sizes": (lambda g, a: a.reshape(-1, -1), "AxisSizeMismatch"),
    "an axis by name": (lambda g, a: a.sum("x"), "InvalidAttribute"),
    "an axis twice": (lambda g, a: a.sum((0, 0)), "AxisOutOfRange"),
    "a step of 0": (lambda g, a: a[5:1:0], "InvalidAttribute"),
    "too many indices": (lambda g, a: a[0, 0, 0], "AxisOutOfRange"),
    "matrices that do not fit": (lambda g, a: a @ a, "AxisAlignmentMismatch"),
    "a pad that is a number": (lambda g, a: a.pad(3), "InvalidAttribute"),
    "a pad that leaves less than nothing": (lambda g, a: a.pad(((-5, 0), (0, 0))), "AxisAlignmentMismatch"),
    "an operand too few": (lambda g, a: g.op("add", a), "InvalidAttribute"),
    "an attribute of another type": (lambda g, a: g.op("softmax", a, axis="x"), "InvalidAttribute"),
    "a wrong einsum": (lambda g, a: g.einsum("((", a), "InvalidAttribute"),
    "an output that is nothing": (lambda g, a: g.output("p", None), "InvalidAttribute"),
    "two outputs of one name": (lambda g, a: (g.output("o", a), g.output("o", a)), "DuplicateId"),
}


@pytest.mark.parametrize("name", BUILDING)
def test_a_wrong_step_of_building(name: str) -> None:
    g = tt.Graph("g")
    a = g.input("a", (2, 3), tt.fp32)
    step, kind = BUILDING[name]
    refused(lambda: step(g, a), kind)


def test_dtypes_may_be_named_as_numpy_names_them() -> None:
    g = tt.Graph("g")
    named = [
        g.input(f"x{i}", (2,), d).dtype for i, d in enumerate(("fp32", np.float32, np.dtype("float32"), "float32", tt.fp32))
    ]
    assert named == [tt.fp32] * 5


def test_a_tensor_is_taken_apart_along_a_known_axis() -> None:
    g = tt.Graph("g")
    a, b = g.input("a", (2, 3), tt.fp32)
    g.output("y", a - b)
    assert (tt.compile(g)(a=np.array([[1, 2, 3], [1, 1, 1]], np.float32))["y"] == [0, 1, 2]).all()
    with pytest.raises(TypeError):
        list(g.input("n", ("N", 3), tt.fp32))
