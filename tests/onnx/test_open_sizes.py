"""Models whose sizes are open: equal sizes that are assumed, programs for the sizes of a call, tuples asked for ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.specialised.adaptive import AdaptiveFunction, DeferredFunction
from tests.onnx.test_models import FLOAT, INT64, compare, ints, model, weights, x

node = helper.make_node
RANK_2 = [None, None]


def pyramid() -> onnx.ModelProto:
    """Two paths down an image, joined: their sizes agree where height and width are multiples of 32."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w1"], ["b"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["b", "w1"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", ["c", "", "scales"], ["u"], mode="nearest", coordinate_transformation_mode="asymmetric"),
        node("Concat", ["u", "b"], ["y"], axis=1),
    ]
    scales = onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    inputs: Any = [("x", FLOAT, ["N", 3, "H", "W"])]
    return model(nodes, inputs, [("y", FLOAT, [None] * 4)], [*weights(w0=(4, 3, 3, 3), w1=(4, 4, 3, 3)), scales])


def test_sizes_that_agree_for_some_inputs_are_assumed_to() -> None:
    made = pyramid()
    compare(made, {"x": x(1, 3, 32, 64)}, {"x": x(2, 3, 96, 32)})
    function = tt.compile(made, threads=1)
    assert isinstance(function, AdaptiveFunction) and "assume" in function.stages["frontend"].text
    with pytest.raises(TatamiError) as error:
        function(x=x(1, 3, 34, 64))
    (said, *_) = error.value.diagnostics
    assert said.code == "E1304" and said.at == "Concat_4" and "10 where" in said.why and "= 9" in said.why
    assert function.shape_set is not None and not function.shape_set.programs  # numbers would not help: no such program


@pytest.mark.parametrize(
    ("nodes", "shapes", "feeds"),
    [
        ([node("Concat", ["a", "b"], ["y"], axis=1)], (["N", 2], ["M", 3]), [(2, 2)]),
        ([node("MatMul", ["a", "b"], ["y"])], ([2, "K"], ["L", 3]), [(4, 4)]),
        ([node("Gemm", ["a", "b"], ["y"])], (["N", "K"], ["L", 3]), [(4, 4)]),
        ([node("Add", ["a", "b"], ["y"])], (["N", 4], ["M", 4]), [(3, 3), (1, 3), (3, 1)]),
        ([node("Einsum", ["a", "b"], ["y"], equation="ik,kj->ij")], (["N", "K"], ["L", 3]), [(4, 4)]),
        ([node("MatMul", ["a", "b"], ["y"])], (["N", 2, 3], ["M", 3, 2]), [(3, 3), (1, 4), (4, 1)]),
        ([node("Mul", ["a", "a"], ["t"]), node("Concat", ["t", "b"], ["y"], axis=0)], ([2, "N"], [3, "M"]), [(5, 5)]),
    ],
)
def test_every_operation_assumes(nodes: list[onnx.NodeProto], shapes: Any, feeds: list[tuple[int, int]]) -> None:
    made = model(nodes, [("a", FLOAT, shapes[0]), ("b", FLOAT, shapes[1])], [("y", FLOAT, [None] * len(shapes[0]))])

    def array(shape: list[Any], size: int) -> np.ndarray:
        return x(*(size if isinstance(s, str) and s != "K" else (4 if s == "K" else s) for s in shape))

    compare(made, *({"a": array(shapes[0], n), "b": array(shapes[1], m)} for n, m in feeds))


def test_an_axis_of_open_size_is_squeezed_with_a_check() -> None:
    nodes = [node("Conv", ["x", "w"], ["c"], strides=[4]), node("Squeeze", ["c", "axes"], ["y"])]
    made = model(nodes, [("x", FLOAT, [1, 2, "T"])], [("y", FLOAT, RANK_2)], [*weights(w=(3, 2, 4)), *ints(axes=[2])])
    compare(made, {"x": x(1, 2, 4)}, {"x": x(1, 2, 7)})
    with pytest.raises(TatamiError, match="E1304"):
        tt.compile(made, threads=1)(x=x(1, 2, 8))


def squeezed_where_one() -> onnx.ModelProto:
    """If(T == 1) Squeeze else Identity, as exporters write it."""
    branches = {
        "then_branch": helper.make_graph([node("Squeeze", ["x", "one"], ["s"])], "t", [], [_open("s")]),
        "else_branch": helper.make_graph([node("Identity", ["x"], ["s"])], "e", [], [_open("s")]),
    }
    nodes = [
        node("Shape", ["x"], ["n"], start=1, end=2),
        node("Equal", ["n", "one"], ["is_one"]),
        node("If", ["is_one"], ["y"], **branches),
    ]
    return model(nodes, [("x", FLOAT, ["N", "T"])], [("y", FLOAT, RANK_2)], ints(one=[1]))


def test_a_branch_of_equal_sizes_is_assumed_to_be_taken() -> None:
    """The rank depends on a size: the squeeze that exporters write. Where it is not 1, its sizes have a program of their own."""
    function = tt.compile(squeezed_where_one(), threads=1)
    assert isinstance(function, AdaptiveFunction) and "T = 1" in function.explain()
    for shape in ((3, 1), (3, 4), (2, 1), (3, 1)):
        given = x(*shape)
        got = function(x=given)["y"]
        assert np.array_equal(got, given[:, 0] if shape[1] == 1 else given)
    assert "compiled in" in function.explain() and function.memory["specialisations"] == 1


def _open(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, RANK_2)


def test_few_programs_are_kept() -> None:
    node_ = node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    made = model([node_], [("x", FLOAT, [2, 3, 4]), ("axes", INT64, [1])], [("y", FLOAT, RANK_2)])
    function = tt.compile(made, threads=1, max_specialisations=2)
    assert isinstance(function, DeferredFunction)
    given = x(2, 3, 4)
    for axis in (0, 1, 2, 0):
        np.testing.assert_allclose(function(x=given, axes=np.array([axis]))["y"], given.sum(axis), rtol=1e-5)
    assert function.memory["specialisations"] == 2
    with pytest.raises(TatamiError, match="InputMismatch"):
        function(x=given)
    with pytest.raises(TatamiError, match="sizes="):
        function.save("no.tatami")


def test_tuples_of_sizes_are_compiled_ahead() -> None:
    made = model([node("MatMul", ["x", "w"], ["y"])], [("x", FLOAT, ["B", 8])], [("y", FLOAT, ["B", 4])], weights(w=(8, 4)))
    function = tt.compile(made, threads=1, sizes={"B": [1, 3, (16, 512)]})
    assert isinstance(function, AdaptiveFunction)
    w = onnx.numpy_helper.to_array(made.graph.initializer[0])
    for rows, calls in ((1, (1, 0, 0)), (20, (1, 0, 1)), (5, (1, 0, 1)), (3, (1, 1, 1)), (1, (2, 1, 1))):
        given = x(rows, 8)
        np.testing.assert_allclose(function(x=given)["y"], given @ w, rtol=1e-4, atol=1e-5)
        assert tuple(c.calls for c in function.clusters) == calls
    assert "program for B in 16..512" in function.explain()
    for wrong in ([(4, 2)], ["a"], [-1], [(1, 2, 3, 4)]):
        with pytest.raises(TatamiError, match="InvalidSymbol"):
            tt.compile(made, sizes={"B": wrong})
    with pytest.raises(TatamiError, match="no such size symbol"):
        tt.compile(made, sizes={"C": [1]})


def test_numbers_for_sizes_reach_the_importer() -> None:
    """A model that cannot be said for open sizes is compiled for the sizes that are given."""
    function = tt.compile(squeezed_where_one(), threads=1, sizes={"T": 1})
    assert np.asarray(function(x=x(5, 1))["y"]).shape == (5,)


def test_axes_keep_the_names_of_the_model() -> None:
    for name, symbol in {
        "sequence_length": "sequence_length",
        "past + 1": "past_1",
        "i0": "D_i0",
        "height/32": "height_32",
    }.items():
        made = model([node("Relu", ["x"], ["y"])], [("x", FLOAT, [name, 2])], [("y", FLOAT, RANK_2)])
        function = tt.compile(made, sizes={symbol: 3}, threads=1)
        assert np.asarray(function(x=x(3, 2))["y"]).shape == (3, 2)


@pytest.mark.parametrize("name", ["k", "m", "n", "int", "for", "x", "threads", "b0", "S0", "arena"])
def test_no_name_of_an_axis_meets_one_of_the_code(name: str) -> None:
    made = model([node("Gemm", ["x", "w"], ["y"])], [("x", FLOAT, [name, 4])], [("y", FLOAT, RANK_2)], weights(w=(4, 6)))
    compare(made, {"x": x(3, 4)})


def test_a_model_that_is_wrong_for_every_size_is_refused_at_once() -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("Conv", ["r", "w"], ["y"], name="narrow")]
    made = model(nodes, [("x", FLOAT, ["N", 3, "H", "W"])], [("y", FLOAT, [None] * 4)], weights(w=(4, 5, 3, 3)))
    with pytest.raises(TatamiError) as error:
        tt.compile(made)
    assert error.value.diagnostics[0].at == "narrow"


def test_a_program_for_sizes_and_values_is_found_again_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch that runs follows from an input, and only one of them fits the sizes."""
    branches = {
        "then_branch": helper.make_graph([node("Reshape", ["x", "wide"], ["s"])], "t", [], [_open("s")]),
        "else_branch": helper.make_graph([node("MatMul", ["x", "w"], ["s"])], "e", [], [_open("s")]),
    }
    nodes = [node("Equal", ["rate", "usual"], ["is_usual"]), node("If", ["is_usual"], ["y"], **branches)]
    made = model(
        nodes, [("x", FLOAT, [2, "T"]), ("rate", INT64, [])], [("y", FLOAT, RANK_2)],
        [*ints(usual=16, wide=[-1, 3]), *weights(w=(5, 1))],
    )  # fmt: skip
    function: Any = tt.compile(made, threads=1)
    given = x(2, 6)
    feed = {"x": given, "rate": np.array(16)}
    assert np.array_equal(function(feed)["y"], given.reshape(-1, 3))
    shape_set = function.shape_set
    count = shape_set.made
    monkeypatch.setattr(type(shape_set.source), "imported", lambda *a, **k: pytest.fail("imported again"))
    for _ in range(3):
        assert np.array_equal(function(feed)["y"], given.reshape(-1, 3))
    assert shape_set.made == count


@pytest.mark.parametrize(("axis", "shape"), [(2, ["B", "T", 5]), (-1, ["B", "T", 5]), (1, ["B", 5, 1]), (0, [6])])
def test_an_old_softmax_of_one_axis_takes_no_copy(axis: int, shape: list[Any]) -> None:
    """A softmax before opset 13 goes over all axes from `axis` on, here a single one: nothing is flattened and split again."""
    kind = [("y", FLOAT, [None] * len(shape))]
    made = model([node("Softmax", ["x"], ["y"], axis=axis)], [("x", FLOAT, shape)], kind, opset=11)
    sizes = [s if isinstance(s, int) else 3 for s in shape]
    compare(made, {"x": x(*sizes)})
    assert len(tt.compile(made, threads=1).stages["region"].value.main.body) == 1
