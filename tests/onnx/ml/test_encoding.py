"""LabelEncoder, CategoryMapper and OneHotEncoder agree with ONNX Runtime, on numbers, words and numbers as words."""

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

WORDS = np.array(["a", "bb", "", "new", "é", "bb", "another new"], object)
KEYS: dict[str, Any] = {
    "keys_strings": ["bb", "a", "é", ""], "keys_int64s": [3, -1, 4, 9], "keys_floats": [1.5, float("nan"), -2.0, 0.0],
}  # fmt: skip
VALUES: dict[str, Any] = {
    "values_strings": ["B", "", "unknown", "é"], "values_int64s": [7, 8, -9, 10], "values_floats": [0.5, -1.0, 2.0, 3.0],
}  # fmt: skip
GIVEN: dict[str, list[np.ndarray]] = {
    "keys_strings": [WORDS, WORDS[:1]],
    "keys_int64s": [np.array([3, 4, 5, -1, 100, -100]), np.array([9])],
    "keys_floats": [np.array([1.5, np.nan, 0, -0.0, 2], np.float32), np.array([-2], np.float32)],
}
KIND = {"strings": both.STRING, "int64s": both.INT64, "floats": both.FLOAT}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("rank", [1, 2])
def test_label_encoder(keys: str, values: str, rank: int) -> None:
    made = node(
        "LabelEncoder", ["x"], ["y"], **{keys: KEYS[keys], values: VALUES[values]}, default_string="none", default_int64=-5
    )
    given = [{"x": x if rank == 1 else x[:, None]} for x in GIVEN[keys]]
    compare(model([made], given[0], {"y": KIND[values.split("_")[1]]}, ml=4), *given)


def test_integers_far_apart() -> None:
    made = node("LabelEncoder", ["x"], ["y"], keys_int64s=[-(2**62), 5, 2**62], values_int64s=[1, 2, 3])
    given = [{"x": np.array([5, 2**62, -(2**62), 2**62 - 1, -6])}]
    compare(model([made], given[0], {"y": both.INT64}, ml=2), *given)


@pytest.mark.parametrize("words", [False, True])
def test_the_first_of_equal_keys_counts(words: bool) -> None:
    keys: dict[str, Any] = {"keys_strings": ["a", "bb", "a"]} if words else {"keys_int64s": [1, 2, 1]}
    made = node("LabelEncoder", ["x"], ["y"], values_int64s=[10, 20, 30], **keys)
    given = [{"x": WORDS if words else np.array([1, 2, 3])}]
    compare(model([made], given[0], {"y": both.INT64}, ml=2), *given)


@pytest.mark.parametrize("back", [False, True])
def test_label_encoder_of_version_1(back: bool) -> None:
    made = node("LabelEncoder", ["x"], ["y"], classes_strings=["a", "bb", "c"], default_string="?", default_int64=-4)
    x = np.array([0, 2, 5, -1]) if back else WORDS
    proto = model([made], {"x": x}, {"y": both.STRING if back else both.INT64}, ml=1)
    (got,) = OnnxBackend.prepare(proto).run({"x": x})
    assert got.tolist() == (["a", "c", "?", "?"] if back else [0, 1, -4, -4, -4, 1, -4])


@pytest.mark.parametrize("back", [False, True])
def test_category_mapper(back: bool) -> None:
    made = node(
        "CategoryMapper",
        ["x"],
        ["y"],
        cats_strings=["bb", "a", "c"],
        cats_int64s=[4, 9, -2],
        default_string="?",
        default_int64=-4,
    )
    given = [{"x": np.array([[4, 2], [9, -2]])}, {"x": np.array([[0]])}] if back else [{"x": WORDS}, {"x": WORDS[:1]}]
    given = given[:1] if back else given
    compare(model([made], given[0], {"y": both.STRING if back else both.INT64}, ml=1), *given)


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(6,), (6, 1), (2, 3)])
def test_one_hot_of_numbers(dtype: Any, shape: tuple[int, ...]) -> None:
    made = node("OneHotEncoder", ["x"], ["y"], cats_int64s=[3, 1, 5], zeros=1)
    given = [{"x": np.array([1, 5, 2, 3, 3, 0]).astype(dtype).reshape(shape)}]
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


@pytest.mark.parametrize("shape", [(7,), (7, 1)])
def test_one_hot_of_words(shape: tuple[int, ...]) -> None:
    made = node("OneHotEncoder", ["x"], ["y"], cats_strings=["bb", "", "é"], zeros=1)
    given = [{"x": WORDS.reshape(shape)}]
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


@pytest.mark.parametrize(
    "x", [np.array([3, -1, 50, 0]), np.array([1.5, -0.25, 3, np.nan, 1e10, np.inf, 0.1], np.float32)], ids=["i64", "fp32"]
)
def test_numbers_as_words(x: np.ndarray) -> None:
    """Numbers become words, and words are looked up: the program compares the numbers."""
    keys = ["3", "03", "-1", "1.5", "NaN", "1e+10", "INF", "0.1", "0.10000000", "word"]
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["w"], to=both.STRING),
        node("LabelEncoder", ["w"], ["y"], keys_strings=keys, values_int64s=list(range(len(keys))), default_int64=-1),
        node("OneHotEncoder", ["w"], ["z"], cats_strings=keys, zeros=1),
        onnx.helper.make_node("Equal", ["w", "k"], ["e"]),
    ]
    constants = {"k": np.array(["3", "1.5", "NaN"], object)[:, None]}
    outputs = {"y": both.INT64, "z": both.FLOAT, "e": onnx.TensorProto.BOOL}
    compare(model(nodes, {"x": x}, outputs, opset=19, constants=constants), {"x": x}, {"x": x[:1]})


def test_keys_of_another_type_are_refused() -> None:
    made = node("LabelEncoder", ["x"], ["y"], keys_int64s=[1], values_int64s=[2])
    proto = model([made], {"x": WORDS}, {"y": both.INT64}, ml=2)
    with pytest.raises(TatamiError, match="InvalidAttribute"):
        OnnxBackend.prepare(proto)
