"""Counts of n-grams agree with onnxruntime, for numbers of words that are open until the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import tatami as tt  # noqa: E402
from tatami.core.diagnostic import TatamiError  # noqa: E402

POOL = {"ngram_counts": [0, 3, 7], "ngram_indexes": [4, 0, 2, 1, 3, 6], "pool_int64s": [2, 3, 5, 1, 2, 2, 2, 1, 2, 2]}


def vectorizer(rank: int, **attributes: Any) -> Any:
    node = onnx.helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**POOL, **attributes})
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT32, ("rows", "words")[2 - rank :])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("rows", "columns")[2 - rank :])
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skips"), [(1, 1, 0), (1, 3, 2), (2, 3, 1), (3, 3, 0)])
def test_counts_of_n_grams_of_open_length(mode: str, least: int, most: int, skips: int) -> None:
    weights = [0.5, 2.0, 3.0, 1.5, 0.25, 1.0]
    lengths = {"min_gram_length": least, "max_gram_length": most, "max_skip_count": skips}
    model = vectorizer(2, mode=mode, weights=weights, **lengths)
    f, session = tt.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    for words in (9, 4, 2, 1):
        x = np.random.default_rng(words).integers(1, 4, (3, words)).astype(np.int32)
        np.testing.assert_array_equal(f(x=x)["y"], session.run(None, {"x": x})[0])


def test_one_row_without_a_gram_of_the_wanted_length_counts_nothing() -> None:
    f = tt.compile(vectorizer(1, mode="TF", min_gram_length=4, max_gram_length=5, max_skip_count=0))
    assert np.array_equal(f(x=np.array([1, 2, 2], np.int32))["y"], np.zeros(7, np.float32))


@pytest.mark.parametrize("wrong", [{"ngram_counts": [0, 3, 6]}, {"ngram_indexes": [0, 1]}, {"ngram_counts": [0, 30]}])
def test_a_pool_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TatamiError, match="InvalidAttribute"):
        tt.compile(vectorizer(2, mode="TF", min_gram_length=1, max_gram_length=3, max_skip_count=0, **wrong))
