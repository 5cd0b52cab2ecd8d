"""An ONNX node stays one operation of the frontend with its attributes, without loops and views."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tatami.models import open_model
from tatami.stages import show


def test_operations_keep_their_attributes() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Attention", ["b", "b", "b"], ["c"], q_num_heads=2, kv_num_heads=2, scale=0.5, is_causal=1),
        helper.make_node("LayerNormalization", ["c", "scale"], ["d"], axis=-1, epsilon=0.25),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("ReduceSum", ["e", "axes"], ["y"], keepdims=0),
    ]
    constants = {
        "kernel": np.ones((8, 3, 3, 3), np.float32),
        "shape": np.array([1, 16, 8], np.int64),
        "scale": np.ones(8, np.float32),
        "axes": np.array([1], np.int64),
    }
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8))
    graph = helper.make_graph(nodes, "m", [x], [y], [numpy_helper.from_array(v, k) for k, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    text = show("frontend", open_model(model)["frontend"])
    for operation, words in {
        "conv": ("stride=[2, 2]", "padding=[[1, 1], [1, 1]]"),
        "attention": ("fp32[1, 2, 16, 4]", "causal=true", "scale=0.5"),  # an axis of two heads
        "layer_norm": ("axis=2", "eps=0.25"),
        "relu": (),
        "reduce_sum": ("axes=[1]", "keepdims=false"),
    }.items():
        (line,) = (one for one in text.splitlines() if f"= {operation}(" in one)
        assert all(word in line for word in words), line
