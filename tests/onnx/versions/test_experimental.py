"""Operators that were experimental before opset 10, against ONNX Runtime, which runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import tatami as tt
from tests.onnx.versions.version_case import Case, fixed, model_of

X = np.random.default_rng(3).standard_normal((2, 3, 6, 7)).astype(np.float32)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Affine", {"alpha": 2.0, "beta": 0.5}),
    ("Affine", {}),
    ("Scale", {"scale": -1.5}),
    ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
    ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
    ("ImageScaler", {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
    ("Crop", {"border": [1, 2, 1, 0]}),
    ("Crop", {"border": [1, 2, 1, 0], "scale": [2, 3]}),
    ("ThresholdedRelu", {"alpha": 0.5}),
    ("MeanVarianceNormalization", {}),
    ("MeanVarianceNormalization", {"across_channels": 1}),
    ("MeanVarianceNormalization", {"normalize_variance": 0}),
]


@pytest.mark.parametrize(("op", "attrs"), CASES, ids=[f"{op}-{i}" for i, (op, _) in enumerate(CASES)])
def test_as_onnx_runtime(op: str, attrs: dict[str, Any]) -> None:
    agrees(op, Case([X], attrs))


def test_a_slice_whose_ends_are_operands() -> None:
    agrees("DynamicSlice", Case([X, fixed(0, 1), fixed(1, 3)]))
    agrees("DynamicSlice", Case([X, fixed([1]), fixed([4]), fixed([3])]))


def agrees(op: str, case: Case) -> None:
    made, feed = model_of(op, 7, case)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    (want,) = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, feed)
    f = tt.compile(made, target="reference")
    np.testing.assert_allclose(f(feed)["y0"], want, rtol=1e-5, atol=1e-6)
    assert not f.compilation.warnings


def test_channels_without_a_bias_of_their_own_are_refused() -> None:
    made, _ = model_of("ImageScaler", 7, Case([X], {"bias": [1.0]}))
    with pytest.raises(tt.TatamiError, match="E1009 InvalidAttribute"):
        tt.compile(made, target="reference")
