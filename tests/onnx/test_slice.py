"""Slice with bounds before and behind the axis, forwards and backwards, of an open size: as onnxruntime has it."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import tatami as tt

BOUNDS = (-9, -5, -4, -1, 0, 2, 3, 4, 9)
CASES = [*product(BOUNDS, BOUNDS, (-2, -1, 1, 2)), *product(BOUNDS, (-(2**31) + 1, -(2**63) + 1), (-2, -1))]


@pytest.fixture(scope="module")
def model() -> ModelProto:
    nodes, constants, outputs = [], [], []
    for k, (start, end, step) in enumerate(CASES):
        given = {"start": start, "end": end, "axis": 0, "step": step}
        constants += [helper.make_tensor(f"{name}{k}", TensorProto.INT64, [1], [value]) for name, value in given.items()]
        nodes.append(helper.make_node("Slice", ["x", *(f"{name}{k}" for name in given)], [f"y{k}"]))
        outputs.append(helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [f"M{k}"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    graph = helper.make_graph(nodes, "slices", [x], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("size", [0, 1, 4])
def test_slices_are_as_onnxruntime_has_them(model: ModelProto, size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    found = tt.compile(model, target="reference")(x=x)
    for k, (case, want) in enumerate(zip(CASES, wanted, strict=True)):
        np.testing.assert_array_equal(found[f"y{k}"], want, err_msg=f"(start, end, step) = {case}")
