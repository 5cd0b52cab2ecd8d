"""Linear models and support vector machines agree with ONNX Runtime: kernels, classes, probabilities, transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx.ml import both  # noqa: E402
from tests.onnx.ml.both import compare, model, node  # noqa: E402

FEATURES = 5
DTYPES = [np.float32, np.float64, np.int64, np.int32]


def feeds(dtype: Any) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": (rng.standard_normal((n, FEATURES)) * 2).astype(dtype)} for n in (1, 6, 40)]


def numbers(*shape: int) -> list[float]:
    return [float(v) for v in np.random.default_rng(sum(shape)).standard_normal(int(np.prod(shape)))]


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("words", "dtype"), list(zip([False, True, False, True], DTYPES, strict=True)))
def test_linear_classifier(post: str, words: bool, dtype: Any) -> None:
    labels: dict[str, Any] = {"classlabels_strings": ["b", "a", "c"]} if words else {"classlabels_ints": [4, -2, 9]}
    attrs: dict[str, Any] = {"coefficients": numbers(3, FEATURES), "intercepts": [0.5, -0.5, 0.0], "post_transform": post}
    made = node("LinearClassifier", ["x"], ["y", "z"], **attrs, **labels)
    given = feeds(dtype)
    compare(model([made], given[0], {"y": both.STRING if words else both.INT64, "z": both.FLOAT}), *given)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_one_set_of_coefficients(post: str) -> None:
    made = node(
        "LinearClassifier", ["x"], ["y", "z"],
        coefficients=numbers(1, FEATURES), intercepts=[0.1], post_transform=post, classlabels_ints=[4, 9],
    )  # fmt: skip
    given = feeds(np.float32)
    compare(model([made], given[0], {"y": both.INT64, "z": both.FLOAT}), *given)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("targets", [2, 3])
def test_linear_regressor(post: str, targets: int) -> None:
    attrs: dict[str, Any] = {"coefficients": numbers(targets, FEATURES), "intercepts": numbers(targets), "targets": targets}
    given = feeds(np.float32)
    made = node("LinearRegressor", ["x"], ["y"], post_transform=post, **attrs)
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


def test_linear_regressor_of_one_target() -> None:
    given = feeds(np.float32)
    made = node("LinearRegressor", ["x"], ["y"], coefficients=numbers(FEATURES), intercepts=[2.0])
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


PARAMETERS = {"LINEAR": [0.0, 0.0, 0.0], "POLY": [0.3, 1.0, 3.0], "RBF": [0.2, 0.0, 0.0], "SIGMOID": [0.1, 0.5, 0.0]}


@pytest.mark.parametrize("kernel", PARAMETERS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    made = node(
        "SVMRegressor", ["x"], ["y"], kernel_type=kernel, kernel_params=PARAMETERS[kernel], n_supports=7, rho=[0.3],
        support_vectors=numbers(7, FEATURES), coefficients=numbers(7), one_class=one_class,
    )  # fmt: skip
    given = feeds(np.float32)
    compare(model([made], given[0], {"y": both.FLOAT}), *given, rtol=1e-4, atol=1e-4)


def machine(kernel: str, sizes: list[int], probabilities: bool, **more: Any) -> Any:
    classes, total = len(sizes), sum(sizes)
    pairs = classes * (classes - 1) // 2
    attrs: dict[str, Any] = {
        "kernel_type": kernel, "kernel_params": PARAMETERS[kernel], "vectors_per_class": sizes, "rho": numbers(pairs),
        "support_vectors": numbers(total, FEATURES), "coefficients": numbers(classes - 1, total), **more,
    }  # fmt: skip
    if probabilities:
        attrs |= {"prob_a": [-1.5 - 0.1 * i for i in range(pairs)], "prob_b": [0.1 * i for i in range(pairs)]}
    return node("SVMClassifier", ["x"], ["y", "z"], **attrs)


@pytest.mark.parametrize("kernel", PARAMETERS)
@pytest.mark.parametrize("sizes", [[3, 4], [2, 3, 1, 2]], ids=["two", "four"])
@pytest.mark.parametrize("probabilities", [False, True])
def test_svm_classifier(kernel: str, sizes: list[int], probabilities: bool) -> None:
    made = machine(kernel, sizes, probabilities, classlabels_ints=[3, 1, 8, 5][: len(sizes)])
    given = feeds(np.float32)
    compare(model([made], given[0], {"y": both.INT64, "z": both.FLOAT}), *given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_svm_classifier_of_other_numbers_and_words(dtype: Any) -> None:
    made = machine("RBF", [2, 2, 3], True, classlabels_strings=["x", "y", "zz"])
    given = feeds(dtype)
    compare(model([made], given[0], {"y": both.STRING, "z": both.FLOAT}), *given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2]])
def test_svm_without_vectors(post: str, labels: list[int]) -> None:
    attrs: dict[str, Any] = {"coefficients": numbers(len(labels), FEATURES), "rho": [0.2], "post_transform": post}
    attrs |= {"kernel_type": "LINEAR", "kernel_params": PARAMETERS["LINEAR"]}
    made = node("SVMClassifier", ["x"], ["y", "z"], classlabels_ints=labels, **attrs)
    given = feeds(np.float32)
    compare(model([made], given[0], {"y": both.INT64, "z": both.FLOAT}), *given)


@pytest.mark.parametrize("post", ["LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("sizes", [[3, 4], [2, 3, 2]])
def test_transforms_of_pair_scores(post: str, sizes: list[int]) -> None:
    made = machine("RBF", sizes, False, classlabels_ints=[3, 1, 8][: len(sizes)], post_transform=post)
    given = feeds(np.float32)
    compare(model([made], given[0], {"y": both.INT64, "z": both.FLOAT}), *given)
