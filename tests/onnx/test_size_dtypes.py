"""Sizes that a model casts to int32 are int32 wherever they become a tensor."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.core.diagnostic import TatamiError

CONSTANTS = {
    "one": np.array(1), "first": np.array([0]), "last": np.array([1]), "three": np.array(3, np.int32),
    "zero": np.array(0, np.int32), "step": np.array(1, np.int32), "axis": np.array([0]), "flat": np.array([-1]),
}  # fmt: skip


def test_a_cast_of_sizes_keeps_its_dtype() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["sizes"], to=TensorProto.INT32),
        helper.make_node("Gather", ["sizes", "one"], ["last_size"]),
        helper.make_node("Add", ["last_size", "three"], ["more"]),
        helper.make_node("Unsqueeze", ["more", "axis"], ["list"]),
        helper.make_node("Slice", ["sizes", "first", "last"], ["part"]),
        helper.make_node("Identity", ["sizes"], ["a"]),
        helper.make_node("Mul", ["more", "v"], ["b"]),
        helper.make_node("Range", ["zero", "more", "step"], ["c"]),
        helper.make_node("Concat", ["list", "sizes", "part"], ["d"], axis=0),
        helper.make_node("ReduceProd", ["sizes"], ["e"], keepdims=0),
        helper.make_node("Reshape", ["sizes", "flat"], ["f"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "M"]),
        helper.make_tensor_value_info("v", TensorProto.INT32, [3]),
    ]
    shapes: dict[str, list[int | str]] = {"a": [2], "b": [3], "c": ["R"], "d": [4], "e": [], "f": [2]}
    outputs = [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in CONSTANTS.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feed = {"x": np.ones((2, 5), np.float32), "v": np.arange(3, dtype=np.int32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = tt.compile(model, threads=1)(feed)
    for name, wanted in zip(shapes, session.run(None, feed), strict=True):
        got = np.asarray(found[name])
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_a_size_that_is_not_there_is_refused() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "index"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "M"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(np.array(2), "index")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(TatamiError) as refused:
        tt.compile(model)(x=np.ones((2, 3), np.float32))
    assert refused.value.diagnostics[0].kind == "AxisOutOfRange"
