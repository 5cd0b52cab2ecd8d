"""Regions of interest that come at run time: RoiAlign with as many points as a region asks for, and MaxRoiPool."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tatami as tt

CASES: list[tuple[str, dict[str, Any]]] = [
    ("RoiAlign", {"mode": "avg"}),
    ("RoiAlign", {"mode": "max"}),
    ("RoiAlign", {"coordinate_transformation_mode": "output_half_pixel"}),
    ("RoiAlign", {"sampling_ratio": 2, "spatial_scale": 0.5}),
    ("MaxRoiPool", {"spatial_scale": 0.5}),
    ("MaxRoiPool", {}),
]


@pytest.mark.parametrize(("op", "attrs"), CASES)
def test_regions_are_data(op: str, attrs: dict[str, Any]) -> None:
    pooled = {"output_height": 2, "output_width": 3} if op == "RoiAlign" else {"pooled_shape": [2, 3]}
    columns = 4 if op == "RoiAlign" else 5
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, "H", "W"]),
        helper.make_tensor_value_info("rois", TensorProto.FLOAT, ["R", columns]),
    ]
    if op == "RoiAlign":
        inputs.append(helper.make_tensor_value_info("images", TensorProto.INT64, ["R"]))
    node = helper.make_node(op, [i.name for i in inputs], ["y"], **pooled, **attrs)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["R", 3, 2, 3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    function = tt.compile(model, threads=1)
    rng = np.random.default_rng(0)
    for count, height, width in ((1, 9, 11), (4, 9, 11), (6, 5, 20)):
        regions = rng.uniform(0, 4, (count, 4)).astype(np.float32)
        regions[:, 2:] += regions[:, :2]
        images = rng.integers(0, 2, count)
        feed: dict[str, np.ndarray] = {"x": rng.standard_normal((2, 3, height, width)).astype(np.float32), "rois": regions}
        if op == "RoiAlign":
            feed["images"] = images
        else:
            feed["rois"] = np.concatenate([images[:, None].astype(np.float32), regions], 1)
        np.testing.assert_allclose(function(feed)["y"], session.run(None, feed)[0], 1e-4, 1e-5)
