"""Files as they are: what ONNX Runtime takes is taken, and what cannot be run is one clear diagnostic."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
import tatami.onnx.backend as onnx_backend
from tatami.cli import main
from tatami.core.diagnostic import Diagnostic
from tatami.onnx.load import load_model
from tatami.onnx.repair import repaired

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.array([[1, -2, 3]], np.float32)
node = helper.make_node


def port(name: str, kind: int = FLOAT, shape: Any = (1, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def bare(name: str) -> onnx.ValueInfoProto:
    """A name without a type."""
    return onnx.ValueInfoProto(name=name)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto] | None = None,
    outputs: list[onnx.ValueInfoProto] | None = None,
    constants: list[tuple[str, Any]] | None = None,
    opset: int = 17,
    ir: int = 8,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in constants or []]
    graph = helper.make_graph(nodes, "g", inputs or [port("x")], outputs or [port("y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def run(made: onnx.ModelProto, **feed: Any) -> list[np.ndarray]:
    return list(tt.compile(made, target="reference")(feed or {"x": X}).values())


def as_onnxruntime(made: onnx.ModelProto, **feed: Any) -> None:
    """Both give the same; what the model was is left alone."""
    before = made.SerializeToString(deterministic=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for a, b in zip(run(made, **feed), session.run(None, feed or {"x": X}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert made.SerializeToString(deterministic=True) == before


def refused(made: onnx.ModelProto) -> Diagnostic:
    with pytest.raises(tt.TatamiError) as caught:
        tt.compile(made, target="reference")
    (found,) = caught.value.diagnostics
    return found


def warned(made: onnx.ModelProto) -> list[str]:
    return [d.why for d in tt.compile(made, target="reference").compilation.warnings if d.kind == "ModelRepaired"]


# -- order -------------------------------------------------------------------------------------------


def test_nodes_are_sorted() -> None:
    as_onnxruntime(model([node("Add", ["t", "x"], ["y"]), node("Mul", ["x", "x"], ["t"])]))


def branch(*nodes: onnx.NodeProto, out: str = "a") -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [bare(out)])


def conditional(then: onnx.GraphProto, other: onnx.GraphProto, *nodes: onnx.NodeProto, out: str = "y") -> onnx.ModelProto:
    flow = node("If", ["c"], [out], then_branch=then, else_branch=other)
    return model([flow, *nodes], [port("x"), port("c", BOOL, ())])


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


# -- names -------------------------------------------------------------------------------------------


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
    """As ONNX Runtime: nothing says which of the two is meant."""
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
    assert "is taken as version 11 has it" in warned(made)[0]
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


# -- tensors -----------------------------------------------------------------------------------------------


def sparse(name: str, places: list[Any]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(places)), [1, 3])


@pytest.mark.parametrize("places", [[0, 2], [[0, 0], [0, 2]]])
def test_sparse_tensors_are_read_wherever_they_stand(places: list[Any]) -> None:
    made = model([node("Add", ["x", "w"], ["y"])])
    made.graph.sparse_initializer.append(sparse("w", places))
    assert run(made)[0].tolist() == [[6, -2, 10]]
    made = model([node("Constant", [], ["w"], sparse_value=sparse("", places)), node("Add", ["x", "w"], ["y"])])
    assert run(made)[0].tolist() == [[6, -2, 10]]
    inside = branch(node("Add", ["x", "w"], ["a"]))
    inside.sparse_initializer.append(sparse("w", places))
    assert run(conditional(inside, branch(node("Abs", ["x"], ["a"]))), x=X, c=np.array(True))[0].tolist() == [[6, -2, 10]]


def test_a_place_outside_a_sparse_tensor_is_refused() -> None:
    for places in ([0, 3], [-1, 0], [[0, 0], [1, 0]], [0]):
        made = model([node("Add", ["x", "w"], ["y"])])
        made.graph.sparse_initializer.append(sparse("w", [0, 2]))
        made.graph.sparse_initializer[0].indices.CopyFrom(numpy_helper.from_array(np.array(places)))
        assert (refused(made).kind, refused(made).at) == ("InvalidDocument", "w")


def test_external_data_is_read_wherever_it_stands(tmp_path: Any) -> None:
    """In an initialiser, a Constant node, a branch's initialiser and its Constant; with the same guards everywhere."""
    data = np.arange(12, dtype=np.float32)
    (tmp_path / "m.data").write_bytes(data.tobytes())

    def outside(name: str, part: int, location: str = "m.data") -> onnx.TensorProto:
        tensor = onnx.TensorProto(name=name, data_type=FLOAT, dims=[1, 3], data_location=onnx.TensorProto.EXTERNAL)
        for key, value in {"location": location, "offset": str(12 * part), "length": "12"}.items():
            tensor.external_data.add(key=key, value=value)
        return tensor

    def made(location: str) -> onnx.ModelProto:
        then = branch(
            node("Constant", [], ["d"], value=outside("", 3, location)),
            node("Add", ["w", "d"], ["e"]),
            node("Add", ["e", "s"], ["a"]),
        )
        then.initializer.append(outside("w", 2))
        whole = conditional(
            then, branch(node("Identity", ["s"], ["a"])), node("Add", ["x", "v"], ["r"]), node("Add", ["r", "k"], ["s"])
        )
        whole.graph.node.append(node("Constant", [], ["k"], value=outside("", 1)))
        whole.graph.initializer.append(outside("v", 0))
        return whole

    path = tmp_path / "m.onnx"
    path.write_bytes(made("m.data").SerializeToString())
    f = tt.compile(path, target="reference")
    parts = data.reshape(4, 1, 3)
    assert f(x=X, c=np.array(True))["y"].tolist() == (X + parts.sum(0)).tolist()
    assert f(x=X, c=np.array(False))["y"].tolist() == (X + parts[:2].sum(0)).tolist()
    path.write_bytes(made("../m.data").SerializeToString())  # of the Constant in the branch
    with pytest.raises(tt.TatamiError, match="outside the model's folder"):
        tt.compile(path, target="reference")
    with pytest.raises(tt.TatamiError, match="no folder"):
        tt.compile(made("m.data"), target="reference")


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


# -- initialisers that are inputs too ------------------------------------------------------------------------


def with_default(ir: int = 8, shape: Any = (1, 3)) -> onnx.ModelProto:
    made = model(
        [node("Mul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["y"])], [port("x"), port("w", FLOAT, shape), port("b")], ir=ir
    )
    for name, values in (("w", [[2, 2, 2]]), ("b", [[1, 0, 1]])):
        made.graph.initializer.append(numpy_helper.from_array(np.array(values, np.float32), name))
    return made


@pytest.mark.parametrize("batch", [1, "N"])
def test_an_initialiser_that_is_an_input_may_be_passed(batch: Any) -> None:
    made = with_default()
    made.graph.input[0].CopyFrom(port("x", FLOAT, (batch, 3)))
    made.graph.output[0].CopyFrom(bare("y"))
    f = tt.compile(made, target="reference")
    w, b = np.array([[1, 2, 3]], np.float32), np.array([[5, 5, 5]], np.float32)
    assert f(x=X)["y"].tolist() == (X * 2 + [1, 0, 1]).tolist()
    assert f(x=X, w=w)["y"].tolist() == (X * w + [1, 0, 1]).tolist()
    assert f({"x": X, "b": b})["y"].tolist() == (X * 2 + b).tolist()
    assert f(X, b=b, w=w)["y"].tolist() == (X * w + b).tolist()
    assert f(x=X)["y"].tolist() == (X * 2 + [1, 0, 1]).tolist()
    with pytest.raises(tt.TatamiError, match="E1801 InputMismatch at v"):
        f(x=X, w=w, v=w)
    (y,) = onnx_backend.prepare(made, threads=1).run({"x": X, "w": w})
    assert y.tolist() == (X * w + [1, 0, 1]).tolist()


def test_before_ir_version_4_initialisers_are_constants() -> None:
    f = tt.compile(with_default(ir=3), target="reference")
    assert f(x=X)["y"].tolist() == (X * 2 + [1, 0, 1]).tolist()
    with pytest.raises(tt.TatamiError, match="InputMismatch"):
        f(x=X, w=X)


def test_an_initialiser_that_contradicts_its_input_is_refused() -> None:
    found = refused(with_default(shape=(2, 3)))
    assert (found.kind, found.at) == ("AxisSizeMismatch", "w")
    made = with_default()
    made.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros((1, 3)), "b"))
    assert (refused(made).kind, refused(made).at) == ("DTypeMismatch", "b")


def test_an_overridden_shape_decides_the_program() -> None:
    """The shape of a Reshape, given by the caller: sizes that data decide."""
    made = model([node("Reshape", ["x", "s"], ["y"])], [port("x", FLOAT, (2, 6)), port("s", INT64, (2,))], [bare("y")])
    made.graph.initializer.append(numpy_helper.from_array(np.array([3, 4]), "s"))
    f = tt.compile(made, target="reference")
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert f(x=x)["y"].shape == (3, 4)
    assert f(x=x, s=np.array([6, 2]))["y"].shape == (6, 2)
    assert f(x=x, s=np.array([-1, 1]))["y"].shape == (12, 1)


# -- the cache of imports ------------------------------------------------------------------------------------


def test_an_import_from_the_cache_warns_and_can_be_overridden_too(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    (tmp_path / "cache").mkdir(mode=0o700)
    made = with_default()
    made.graph.node[0].attribute.append(helper.make_attribute("colour", "red"))
    onnx.save(made, tmp_path / "m.onnx")
    imports = []
    monkeypatch.setattr("tatami.onnx.load.load_model", lambda *a, **k: imports.append(a) or load_model(*a, **k))
    for _ in range(2):
        f = tt.compile(tmp_path / "m.onnx", threads=1)
        assert [d.kind for d in f.compilation.warnings] == ["ModelRepaired"]
        assert f(x=X, w=X)["y"].tolist() == (X * X + [1, 0, 1]).tolist()
    assert len(imports) == 1


def test_an_axis_without_a_name_is_not_one_that_is_called_as_we_call_it() -> None:
    made = model([node("Neg", ["x"], ["y"])], [port("x", FLOAT, ("", "x_0"))], [bare("y")])
    f = tt.compile(made, target="reference", max_specialisations=0)
    assert f(x=np.ones((2, 5), np.float32))["y"].shape == (2, 5)
