"""Names of values, nodes and sizes: those of a model and our own never meet."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import tatami as tt
from tests.onnx.small_models import (
    FLOAT,
    X,
    as_onnxruntime,
    bare,
    branch,
    conditional,
    model,
    node,
    port,
    refused,
    run,
    warned,
)


def test_branches_use_a_name_again() -> None:
    one, other = branch(node("Neg", ["x"], ["a"])), branch(node("Abs", ["x"], ["a"]))
    as_onnxruntime(
        conditional(one, other, node("Relu", ["x"], ["a"]), node("Add", ["a", "z"], ["y"]), out="z"), x=X, c=np.array(True)
    )


def test_the_last_constant_of_a_name_holds() -> None:
    add = node("Add", ["x", "w"], ["y"])
    twice = model([add], constants=[("w", [1, 1, 1]), ("w", [5, 5, 5])])
    as_onnxruntime(twice)
    constants = [node("Constant", [], ["w"], value_floats=v) for v in ([1.0, 1, 1], [3.0, 3, 3])]
    as_onnxruntime(model([*constants, add]))
    as_onnxruntime(model([constants[0], add], constants=[("w", [7, 7, 7])]))
    assert warned(twice) == ["the constant is defined twice: the last one is taken"]


@pytest.mark.parametrize(
    "made",
    [
        model([node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["a"]), node("Relu", ["a"], ["y"])]),
        model([node("Neg", ["x"], ["w"]), node("Add", ["x", "w"], ["y"])], constants=[("w", [1, 1, 1])]),
        model([node("Neg", ["x"], ["x"]), node("Relu", ["x"], ["y"])]),
        model([node("Neg", ["x"], ["y"])], [port("x"), port("x")]),
    ],
    ids=["nodes", "initialiser", "input", "inputs"],
)
def test_a_value_made_twice_is_refused(made: onnx.ModelProto) -> None:
    """Two values of one name are refused, as in ONNX Runtime: nothing says which of the two is meant."""
    assert refused(made).kind == "DuplicateId"


def test_a_value_that_nothing_makes_is_named() -> None:
    found = refused(model([node("Add", ["x", "nowhere"], ["y"], name="sum")]))
    assert (found.kind, found.at) == ("UnknownValue", "sum") and "'nowhere'" in found.why
    assert refused(model([node("Neg", ["x"], ["z"])])).at == "y"


def test_node_names_may_be_equal_or_empty() -> None:
    made = model([node("Neg", ["x"], ["a"], name="n"), node("Exp", ["a"], ["b"], name="n"), node("Abs", ["b"], ["y"])])
    np.testing.assert_allclose(run(made)[0], np.exp(-X), rtol=1e-6)


def test_an_output_may_be_listed_twice_and_be_an_input_or_a_constant() -> None:
    outputs = [port("y"), port("y"), port("x"), port("w")]
    as_onnxruntime(model([node("Neg", ["x"], ["y"])], outputs=outputs, constants=[("w", X)]))


INTERNAL = ("t0", "t1", "t2", "t3", "const_0", "outer0", "state0", "main", "setup", "size_3", "identity_0", "neg_0", "branch0", "x_1", "s0", "v0", "S_1")  # fmt: skip


@pytest.mark.parametrize("name", INTERNAL)
def test_a_name_of_ours_is_free_for_users(name: str) -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Transpose", ["a"], ["b"], perm=[1, 0]), node("MatMul", ["a", "b"], ["c"])]
    weight = [("w", [2.0])]
    as_output = model([*nodes, node("Add", ["c", "w"], [name])], outputs=[bare(name), bare("a")], constants=weight)
    np.testing.assert_allclose(run(as_output)[0], X @ X.T + 2, rtol=1e-6)
    nodes[0] = node("Neg", [name], ["a"])
    as_input = model([*nodes, node("Add", ["c", "w"], ["y"])], [port(name, FLOAT, ("N", 3))], [bare("y")], weight)
    np.testing.assert_allclose(run(as_input, **{name: X})[0], X @ X.T + 2, rtol=1e-6)


def test_names_that_the_stages_make_are_free_for_users() -> None:
    """Whatever values, nodes, kernels and sizes are called inside, a model whose output has that name compiles."""
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Softmax", ["a"], ["b"]),
        node("MatMul", ["b", "w"], ["c"]),
        node("Erf", ["c"], ["y"]),
    ]
    constants = [("w", np.eye(3))]
    stages = tt.compile(model(nodes, outputs=[bare("y")], constants=constants), threads=1).stages
    text = " ".join(stages[name].text for name in ("frontend", "tiny", "region", "plan", "loop", "execution"))
    words = {w for w in re.findall(r"[A-Za-z_]\w*", text) if w[-1].isdigit()}
    assert len(words) > 8
    expected = run(model(nodes, outputs=[bare("y")], constants=constants))[0]
    for word in sorted(words - {"x"}):
        nodes[3] = node("Erf", ["c"], [word])
        (y,) = tt.compile(model(nodes, outputs=[bare(word)], constants=constants), threads=1)(x=X).values()
        np.testing.assert_allclose(y, expected, rtol=1e-5, err_msg=word)


def test_a_size_of_ours_is_not_the_models() -> None:
    """NonZero gives its number of results a symbol of its own, also where an axis of the model has that name."""
    nodes = [node("NonZero", ["x"], ["i"]), node("Cast", ["i"], ["j"], to=FLOAT), node("Neg", ["x"], ["y"])]
    names = {f"NZ_{i}" for i in range(6)}
    for name in names:
        made = model(nodes, [port("x", FLOAT, (name,))], [bare("y"), bare("j")])
        x = np.array([0, 3, 0, 4, 5], np.float32)
        y, places = run(made, x=x)
        assert y.tolist() == (-x).tolist() and places.tolist() == [[1, 3, 4]]
