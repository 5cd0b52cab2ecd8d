"""ONNX's Gradient: of tensors it names, at operands that are others, twice, and refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.frontend.run import run

DOMAIN = "ai.onnx.preview.training"


def model(inputs: list[str], nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    ports = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in (*inputs, *outputs)}
    graph = helper.make_graph(nodes, "g", [ports[n] for n in inputs], [ports[n] for n in outputs])
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets)


def gradient(inputs: list[str], outputs: list[str], **names: object) -> onnx.NodeProto:
    return helper.make_node("Gradient", inputs, outputs, domain=DOMAIN, **names)


CUBE = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Mul", ["s", "w"], ["y"])]


def results(made: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    return list(run(tt.open_model(made)["frontend"], inputs, mode="float64").values())


def test_operands_other_than_the_named_tensors_are_put_in_their_places() -> None:
    nodes = [*CUBE, gradient(["x1", "w1"], ["dx"], xs=["x"], zs=["w"], y="y")]
    x, w, x1, w1 = (np.arange(3) + k for k in (1.0, 2.0, 5.0, 7.0))
    y, dx = results(model(["x", "w", "x1", "w1"], nodes, ["y", "dx"]), x=x, w=w, x1=x1, w1=w1)
    np.testing.assert_array_equal(y, x * x * w)
    np.testing.assert_array_equal(dx, 2 * x1 * w1)


def test_an_intermediate_tensor_is_a_variable_too() -> None:
    nodes = [*CUBE, gradient(["s", "w"], ["ds", "dw"], xs=["s", "w"], y="y")]
    x, w = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    ds, dw = results(model(["x", "w"], nodes, ["ds", "dw"]), x=x, w=w)
    np.testing.assert_array_equal(ds, w)
    np.testing.assert_array_equal(dw, x * x)


def test_a_gradient_of_a_gradient() -> None:
    first = gradient(["x"], ["dx"], xs=["x"], y="y")
    second = gradient(["x", "w"], ["dxx", "dxw"], xs=["x", "w"], y="dx")
    x, w = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    dxx, dxw = results(model(["x", "w"], [*CUBE, first, second], ["dxx", "dxw"]), x=x, w=w)
    np.testing.assert_array_equal(dxx, 2 * w)
    np.testing.assert_array_equal(dxw, 2 * x)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (gradient(["x"], ["dx"], xs=["x", "w"], y="y"), "xs and zs name 2 tensors, it has 1 operands"),
        (gradient(["x"], ["dx"], xs=["x"], y="nothing"), "it reads 'nothing', which nothing defines"),
        (gradient(["v"], ["dx"], xs=["v"], y="y"), "does not depend on 'v'"),
    ],
)
def test_what_does_not_fit_is_one_diagnostic(node: onnx.NodeProto, words: str) -> None:
    with pytest.raises(TatamiError) as info:
        tt.open_model(model(["x", "w", "v"], [*CUBE, node], ["dx"]))
    (found,) = info.value.diagnostics
    assert words in found.why
