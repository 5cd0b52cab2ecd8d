"""Weights that are not numbers at the border of an image: padding is zeros that are multiplied (decision 0056)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tatami as tt
from tatami.plan.ir import CpuContraction, CpuCorrelation, CpuPlanes, CpuRows, CpuWindow, CpuWinograd

CASES: dict[str, tuple[type, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "rows": (CpuRows, (1, 3, 7), (4, 3, 3), {}),
    "rows of a line": (CpuRows, (1, 4, 3, 4), (4, 4, 1, 3), {}),
    "planes": (CpuPlanes, (1, 32, 14, 14), (32, 32, 5, 5), {}),
    "planes of groups": (CpuPlanes, (1, 32, 14, 14), (32, 8, 3, 5), {"group": 4}),
    "a window": (CpuWindow, (1, 32, 14, 14), (32, 1, 3, 3), {"group": 32}),
    "a window in place": (CpuWindow, (1, 32, 4, 24), (32, 1, 3, 3), {"group": 32}),
    "a contraction": (CpuContraction, (1, 16, 4, 8, 8), (96, 16, 3, 3, 3), {}),
    "lanes along the sum": (CpuCorrelation, (1, 4, 6, 6, 6), (8, 4, 3, 3, 3), {}),
    "tiles": (CpuWinograd, (1, 16, 14, 14), (16, 16, 3, 3), {}),
    "tiles of stride 2": (CpuWinograd, (1, 64, 14, 14), (64, 64, 3, 3), {"strides": [2, 2]}),
}
"""The plan, the shapes of image and weights, attributes."""


def model(shape: tuple[int, ...], weights: np.ndarray, attributes: dict[str, Any]) -> onnx.ModelProto:
    """A Conv with a border of one on every side."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * (2 * len(shape) - 4), **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * len(shape))
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", CASES)
def test_a_weight_that_is_no_number_meets_the_zeros_of_the_border(name: str, value: float) -> None:
    kind, shape, of_weights, attributes = CASES[name]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(of_weights).astype(np.float32)
    w[1].reshape(-1)[0] = value
    made = model(shape, w, attributes)
    f = tt.compile(made, target="cpu:avx2")
    (planned,) = f.stages["plan"].value.main.regions
    assert isinstance(planned.choices[-1].plan, kind)
    with np.errstate(invalid="ignore"):
        (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    got = f({"x": x})["y"]
    finite = np.isfinite(want)
    assert finite[:, [0, *range(2, w.shape[0])]].all() and not finite[:, 1].all()
    assert np.array_equal(np.isfinite(got), finite)
    assert np.abs(got[finite] - want[finite]).max() <= 1e-5 * np.abs(want[finite]).max()
    if kind is not CpuWinograd:  # sums of transformed weights hold both infinities
        assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
