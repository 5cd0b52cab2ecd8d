"""Scaler, Normalizer, Imputer, Binarizer, FeatureVectorizer and ArrayFeatureExtractor agree with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tatami.backends.onnx_api import OnnxBackend  # noqa: E402
from tatami.core.diagnostic import TatamiError  # noqa: E402
from tests.onnx.ml import both  # noqa: E402
from tests.onnx.ml.both import compare, model, node  # noqa: E402


def feeds(dtype: Any, ranks: tuple[int, ...] = (2,)) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    shapes = [s for s in ((1, 4), (9, 4), (4,)) if len(s) in ranks]
    return [{"x": (rng.standard_normal(s) * 3).astype(dtype)} for s in shapes]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("width", [1, 4])
def test_scaler(dtype: Any, width: int) -> None:
    made = node("Scaler", ["x"], ["y"], offset=[0.5, -1.0, 2.0, 0.0][:width], scale=[2.0, 0.1, 3.0, -1.0][:width])
    given = feeds(dtype)
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(dtype: Any, norm: str) -> None:
    given = feeds(dtype)
    given.append({"x": np.array([[0, 0, 0, 0], [1, 2, 2, 4]], dtype)})
    compare(model([node("Normalizer", ["x"], ["y"], norm=norm)], given[0], {"y": both.FLOAT}), *given)


@pytest.mark.parametrize("replaced", [float("nan"), 0.0])
@pytest.mark.parametrize("width", [1, 4])
def test_imputer_of_floats(replaced: float, width: int) -> None:
    given = feeds(np.float32)
    for feed in given:
        feed["x"][0, 1] = replaced
    made = node("Imputer", ["x"], ["y"], imputed_value_floats=[1.0, 2.0, 3.0, 4.0][:width], replaced_value_float=replaced)
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


def test_imputer_of_integers() -> None:
    given = feeds(np.int64)
    made = node("Imputer", ["x"], ["y"], imputed_value_int64s=[7, 8, 9, 10], replaced_value_int64=2)
    compare(model([made], given[0], {"y": both.INT64}), *given)


def test_imputer_without_values_of_the_dtype() -> None:
    proto = model([node("Imputer", ["x"], ["y"], imputed_value_floats=[1.0])], feeds(np.int64)[0], {"y": both.INT64})
    with pytest.raises(TatamiError, match="InvalidAttribute"):
        OnnxBackend.prepare(proto)


@pytest.mark.parametrize("dtype", [np.float32])
def test_binarizer(dtype: Any) -> None:
    given = feeds(dtype, (1, 2)[1:])
    compare(model([node("Binarizer", ["x"], ["y"], threshold=0.5)], given[0], {"y": both.FLOAT}), *given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_feature_vectorizer(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    given = [{k: (rng.standard_normal((n, w)) * 4).astype(dtype) for k, w in (("a", 2), ("b", 1), ("c", 3))} for n in (1, 5)]
    proto = model([node("FeatureVectorizer", ["a", "b", "c"], ["y"], inputdimensions=[2, 1, 3])], given[0], {"y": both.FLOAT})
    compare(proto, *given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, object])
@pytest.mark.parametrize("index", [[2], [0, 3, 3], [[1], [2], [0]]])
def test_array_feature_extractor(dtype: Any, index: Any) -> None:
    x = (np.arange(20) * 3 % 11).reshape(5, 4)
    given = [{"x": x.astype(str).astype(object) if dtype is object else x.astype(dtype)}]
    kind = both.STRING if dtype is object else onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = node("ArrayFeatureExtractor", ["x", "i"], ["y"])
    compare(model([made], given[0], {"y": kind}, constants={"i": np.array(index, np.int64)}), *given)
