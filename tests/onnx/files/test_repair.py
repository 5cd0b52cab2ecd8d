"""Files as they are: what ONNX Runtime takes is taken, and what cannot be run is one clear diagnostic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import tatami as tt
from tatami.cli import main
from tatami.onnx.files.repair import repaired
from tests.onnx.small_models import (
    FLOAT,
    INT64,
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

# -- order -------------------------------------------------------------------------------------------


def test_nodes_are_sorted() -> None:
    as_onnxruntime(model([node("Add", ["t", "x"], ["y"]), node("Mul", ["x", "x"], ["t"])]))


@pytest.mark.parametrize("truth", [True, False])
def test_what_a_branch_captures_is_computed_before_it(truth: bool) -> None:
    made = conditional(branch(node("Neg", ["b"], ["a"])), branch(node("Abs", ["b"], ["a"])), node("Relu", ["x"], ["b"]))
    as_onnxruntime(made, x=X, c=np.array(truth))


@pytest.mark.parametrize("truth", [True, False])
def test_nodes_of_a_branch_are_sorted(truth: bool) -> None:
    """ONNX Runtime refuses it; nothing is unclear about it."""
    made = conditional(branch(node("Neg", ["k"], ["a"]), node("Exp", ["x"], ["k"])), branch(node("Abs", ["x"], ["a"])))
    (y,) = run(made, x=X, c=np.array(truth))
    np.testing.assert_allclose(y, -np.exp(X) if truth else np.abs(X), rtol=1e-6)


def test_nodes_of_a_function_are_sorted() -> None:
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [node("Neg", ["k"], ["b"]), node("Exp", ["a"], ["k"])]
    made = model([node("F", ["x"], ["y"], domain="own")])
    made.opset_import.append(sets[1])
    made.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, sets))
    np.testing.assert_allclose(run(made)[0], -np.exp(X), rtol=1e-6)


def test_overloads_of_a_function_are_told_apart() -> None:
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    calls = [node("F", ["x"], ["a"], domain="own", overload="one"), node("F", ["a"], ["y"], domain="own", overload="two")]
    made = model(calls, ir=10)
    made.opset_import.append(sets[1])
    for overload, op in (("one", "Exp"), ("two", "Neg")):
        made.functions.append(helper.make_function("own", "F", ["a"], ["b"], [node(op, ["a"], ["b"])], sets, overload=overload))
    as_onnxruntime(made)


def test_a_circle_is_named() -> None:
    found = refused(
        model(
            [node("Add", ["x", "b"], ["a"], name="first"), node("Neg", ["a"], ["b"], name="second"), node("Neg", ["a"], ["y"])]
        )
    )
    assert found.kind == "CyclicGraph"
    assert "first <- second <- first" in found.why


# -- axes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["?", "-1", "", "None", " "])
def test_axes_without_a_name_are_each_their_own(word: str) -> None:
    made = model([node("Neg", ["x"], ["y"])], [port("x", FLOAT, (word, word))], [bare("y")])
    f = tt.compile(made, target="reference")
    x = np.ones((2, 5), np.float32)
    assert f(x=x)["y"].shape == (2, 5)


def test_an_axis_of_a_negative_size_is_open() -> None:
    made = model([node("Neg", ["x"], ["y"])], [port("x", FLOAT, (-1, 3))], [port("y", FLOAT, (-1, 3))])
    f = tt.compile(made, target="reference")
    assert [f(x=np.ones((n, 3), np.float32))["y"].shape for n in (1, 4)] == [(1, 3), (4, 3)]


def test_axes_of_one_name_are_one() -> None:
    made = model([node("Neg", ["x"], ["y"])], [port("x", FLOAT, ("N", "N"))], [bare("y")])
    f = tt.compile(made, target="reference", max_specialisations=0)
    with pytest.raises(tt.TatamiError):
        f(x=np.ones((2, 5), np.float32))


# -- types and shapes that are missing or wrong ------------------------------------------------------------


def test_results_need_neither_type_nor_shape() -> None:
    as_onnxruntime(model([node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["y"])], outputs=[port("y", FLOAT, None)]))
    assert run(model([node("Shape", ["x"], ["y"])], outputs=[bare("y")]))[0].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [(INT64, (1, 3), "DTypeMismatch"), (FLOAT, (1, 4), "AxisSizeMismatch"), (FLOAT, (3,), "AxisSizeMismatch"), (FLOAT, (1, 0), "AxisSizeMismatch")],
)  # fmt: skip
def test_a_declared_result_that_contradicts_its_nodes_is_refused(kind: int, shape: tuple[int, ...], expected: str) -> None:
    found = refused(model([node("Neg", ["x"], ["y"])], outputs=[port("y", kind, shape)]))
    assert (found.kind, found.at) == (expected, "y")


def test_a_declared_size_beside_a_symbol_is_no_contradiction() -> None:
    made = model([node("Neg", ["x"], ["y"])], [port("x", FLOAT, ("N", 3))], [port("y", FLOAT, (1, 3))])
    assert run(made, x=np.ones((4, 3), np.float32))[0].shape == (4, 3)


# -- attributes and operands -----------------------------------------------------------------------------


def edited(made: onnx.ModelProto, edit: Callable[[onnx.NodeProto], Any]) -> onnx.ModelProto:
    edit(made.graph.node[0])
    return made


def leaky(**attrs: Any) -> onnx.ModelProto:
    return model([node("LeakyRelu", ["x"], ["y"], name="n", **attrs)])


def test_an_attribute_of_no_version_is_dropped_with_a_warning() -> None:
    made = leaky(alpha=0.5, colour="red")
    assert warned(made) == ["attribute 'colour' is dropped: LeakyRelu has none of that name"]
    np.testing.assert_allclose(run(made)[0], [[1, -1, 3]])
    assert warned(leaky(alpha=0.5, consumed_inputs=[0])) == []


def test_an_attribute_of_another_version_means_what_it_means_there() -> None:
    made = model([node("Squeeze", ["x"], ["y"], axes=[0])], outputs=[bare("y")])
    assert run(made)[0].shape == (3,)
    assert "is read as in version 11" in warned(made)[0]
    made = model(
        [node("Add", ["x", "w"], ["y"], broadcast=1, axis=0)], [port("x", FLOAT, (3, 2))], [bare("y")], [("w", [1, 2, 3])]
    )
    assert run(made, x=np.zeros((3, 2), np.float32))[0].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_an_attribute_without_a_type_has_the_operators() -> None:
    def forget(n: onnx.NodeProto) -> None:
        n.attribute[0].ClearField("type")

    np.testing.assert_allclose(run(edited(leaky(alpha=0.5), forget))[0], [[1, -1, 3]])
    np.testing.assert_allclose(run(leaky(alpha=2))[0], [[1, -4, 3]])  # a whole number as a float


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (leaky(alpha="much"), "InvalidAttribute"),
        (edited(leaky(alpha=1.0), lambda n: n.attribute.append(n.attribute[0])), "InvalidAttribute"),
        (edited(leaky(alpha=1.0), lambda n: setattr(n.attribute[0], "type", onnx.AttributeProto.INT)), "InvalidAttribute"),
        (model([node("Concat", ["x", "x"], ["y"])]), "InvalidAttribute"),
        (edited(leaky(alpha=1.0), lambda n: setattr(n.attribute[0], "ref_attr_name", "a")), "InvalidAttribute"),
        (model([node("Pad", ["x", "p"], ["y"], mode="mirror")], constants=[("p", [0, 0, 0, 0])]), "InvalidAttribute"),
        (model([node("Neg", ["x", "x"], ["y"])]), "InvalidDocument"),
        (model([node("Add", ["x"], ["y"])]), "InvalidDocument"),
        (model([node("Add", ["x", ""], ["y"])]), "InvalidDocument"),
    ],
    ids=["word for number", "twice", "of another type", "missing", "of no function", "mode", "too many", "too few", "empty"],
)
def test_a_node_that_its_operator_does_not_allow_is_refused(made: onnx.ModelProto, kind: str) -> None:
    assert refused(made).kind == kind


def test_empty_operands_at_the_end_are_none() -> None:
    assert run(model([node("Neg", ["x", "", ""], ["y"])]))[0].tolist() == (-X).tolist()


# -- versions and domains ----------------------------------------------------------------------------------


def test_a_model_without_an_opset_has_that_of_its_ir_version() -> None:
    made = model([node("Softmax", ["x"], ["y"])], [port("x", FLOAT, (2, 2, 2))], [bare("y")])
    del made.opset_import[:]
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    assert warned(made) == ["no opset is named: 18 is taken, that of IR version 8"]
    np.testing.assert_allclose(run(made, x=x)[0].sum(-1), 1, rtol=1e-6)
    made.ir_version = 1
    assert warned(made) == []
    np.testing.assert_allclose(run(made, x=x)[0].sum((1, 2)), 1, rtol=1e-6)  # opset 1: over all axes from 1 on


def test_a_newer_opset_than_known_is_read_as_the_newest() -> None:
    made = model([node("Neg", ["x"], ["y"])], opset=99)
    assert "opset 99 is newer than the newest known" in warned(made)[0]
    assert run(made)[0].tolist() == (-X).tolist()


def test_both_spellings_of_the_domain_are_one() -> None:
    made = model([node("LeakyRelu", ["x"], ["y"], domain="ai.onnx")])
    made.opset_import[0].domain = "ai.onnx"
    as_onnxruntime(made)
    made.opset_import.add(domain="", version=16)
    as_onnxruntime(made)
    assert repaired(made).opset == 17


# -- tatami check ------------------------------------------------------------------------------------------


def test_check_tells_what_the_checker_finds_and_what_an_import_repairs(tmp_path: Any) -> None:
    nodes = [node("Add", ["t", "x"], ["y"], name="late", colour=3), node("Mul", ["x", "x"], ["t"], name="early", taste=4)]
    onnx.save(model(nodes, [port("x", FLOAT, ("?", 3))]), tmp_path / "m.onnx")
    result = CliRunner().invoke(main, ["check", str(tmp_path / "m.onnx")])
    assert result.exit_code == 1
    for words in (
        "Unrecognized attribute: colour",
        "Unrecognized attribute: taste",
        "an import repairs x: axis 0 of size '?'",
        "early: nodes are not in the order",
    ):
        assert words in result.output, words
    onnx.save(model([node("Neg", ["x"], ["y"])]), tmp_path / "right.onnx")
    result = CliRunner().invoke(main, ["check", str(tmp_path / "right.onnx")])
    assert result.exit_code == 0 and result.output.strip().endswith("1 graph, no faults")


def test_check_finds_what_contradicts_the_inferred_shapes(tmp_path: Any) -> None:
    made = model([node("Neg", ["x"], ["a"]), node("Relu", ["a"], ["y"])])
    made.graph.value_info.append(port("a", INT64))
    onnx.save(made, tmp_path / "m.onnx")
    result = CliRunner().invoke(main, ["check", str(tmp_path / "m.onnx")])
    assert result.exit_code == 1 and "Inferred elem type differs" in result.output
