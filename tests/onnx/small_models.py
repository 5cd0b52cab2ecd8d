"""Models of a few nodes for tests of files as they are, and how both runtimes take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.core.diagnostic import Diagnostic

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


def branch(*nodes: onnx.NodeProto, out: str = "a") -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [bare(out)])


def conditional(then: onnx.GraphProto, other: onnx.GraphProto, *nodes: onnx.NodeProto, out: str = "y") -> onnx.ModelProto:
    flow = node("If", ["c"], [out], then_branch=then, else_branch=other)
    return model([flow, *nodes], [port("x"), port("c", BOOL, ())])
