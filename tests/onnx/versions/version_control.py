"""A model of If, Loop or Scan for each version of theirs."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.versions.version_case import Array, X


def _branch(op: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [onnx.ValueInfoProto(name="b")])


def control(op: str, opset: int) -> tuple[onnx.ModelProto, dict[str, Array], list[Array]]:
    """A model of If, Loop or Scan, operands and results."""
    x = X[0, 0]
    value = helper.make_tensor_value_info
    inputs, feed = [value("x", TensorProto.FLOAT, x.shape)], {"x": x}
    if op == "If":
        inputs.append(value("c", TensorProto.BOOL, [1]))
        feed["c"] = np.array([False])
        node = helper.make_node("If", ["c"], ["y"], then_branch=_branch("Abs"), else_branch=_branch("Neg"))
        outputs, want = ["y"], [-x]
    elif op == "Loop":
        nodes = [
            helper.make_node("Add", ["s", "x"], ["t"]),
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Neg", ["t"], ["row"]),
        ]
        ports = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("s", TensorProto.FLOAT, x.shape)]
        results = [value("on", TensorProto.BOOL, []), *(value(n, TensorProto.FLOAT, x.shape) for n in ("t", "row"))]
        node = helper.make_node("Loop", ["n", "", "x"], ["last", "rows"], body=helper.make_graph(nodes, "body", ports, results))
        inputs.append(value("n", TensorProto.INT64, []))
        feed["n"] = np.array(3)
        outputs, want = ["last", "rows"], [4 * x, -np.stack([2 * x, 3 * x, 4 * x])]
    else:
        x = feed["x"] = X[0]
        inputs = [value("s0", TensorProto.FLOAT, (3, 5) if opset < 9 else (5,)), value("x", TensorProto.FLOAT, x.shape)]
        feed["s0"] = np.zeros((3, 5) if opset < 9 else 5, np.float32)
        nodes = [helper.make_node("Add", ["s", "r"], ["t"]), helper.make_node("Identity", ["t"], ["row"])]
        rows = (5,) if opset < 9 else (4, 5)
        sizes = (5,) if opset < 9 else None
        if opset >= 9:
            nodes = [helper.make_node("Add", ["s", "m"], ["t"]), helper.make_node("Identity", ["t"], ["row"])]
            nodes.insert(
                0,
                helper.make_node("ReduceSum", ["r", "first"], ["m"], keepdims=0)
                if opset >= 13
                else helper.make_node("ReduceSum", ["r"], ["m"], axes=[0], keepdims=0),
            )
        ports = [value("s", TensorProto.FLOAT, (5,)), value("r", TensorProto.FLOAT, rows)]
        results = [value("t", TensorProto.FLOAT, sizes), value("row", TensorProto.FLOAT, sizes)]
        first = [numpy_helper.from_array(np.array([0]), "first")] if opset >= 13 else []
        body = helper.make_graph(nodes, "body", ports, results, first)
        operands = ["", "s0", "x"] if opset < 9 else ["s0", "x"]
        node = helper.make_node("Scan", operands, ["last", "rows"], body=body, num_scan_inputs=1)
        sums = x.cumsum(1) if opset < 9 else x.sum(1).cumsum(0)
        outputs, want = ["last", "rows"], [sums[:, -1] if opset < 9 else sums[-1], sums]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feed, want
