"""Maps at the ends of a model: sequences of dicts out, dicts in, as ONNX Runtime takes and gives them."""

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


def maps(name: str, key: int) -> Any:
    kind = onnx.helper.make_map_type_proto(key, onnx.helper.make_tensor_type_proto(both.FLOAT, []))
    return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(kind))


@pytest.mark.parametrize("words", [False, True])
def test_zip_map(words: bool) -> None:
    labels: dict[str, Any] = {"classlabels_strings": ["b", "", "é"]} if words else {"classlabels_int64s": [3, -1, 7]}
    made = node("ZipMap", ["x"], ["y"], **labels)
    feeds = [{"x": np.random.default_rng(n).random((n, 3), np.float32)} for n in (1, 5)]
    proto = model([made], feeds[0], {"y": maps("y", both.STRING if words else both.INT64)})
    (got,) = compare(proto, *feeds)
    assert isinstance(got, list) and isinstance(got[0], dict)


@pytest.mark.parametrize("keys", ["string", "int64"])
def test_dict_vectorizer(keys: str) -> None:
    vocabulary: list[Any] = ["b", "a", "é", ""] if keys == "string" else [5, -2, 7, 0]
    attrs: dict[str, Any] = {f"{keys}_vocabulary": vocabulary}
    made = node("DictVectorizer", ["x"], ["y"], **attrs)
    feeds = [
        {"x": {k: i + 2.0 for i, k in enumerate(ks)}}
        for ks in (vocabulary[:2], [*vocabulary[2:], "new" if keys == "string" else 99])
    ]
    compare(model([made], feeds[0], {"y": both.FLOAT}), *feeds)


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_INT64"])
def test_cast_map(form: str, to: str) -> None:
    made = node("CastMap", ["x"], ["y"], map_form=form, cast_to=to, max_map=5)
    feeds = [{"x": {3: 7.0, 0: 2.0, 1: -4.0}}, {"x": {2: 1.0}}]
    compare(model([made], feeds[0], {"y": both.FLOAT if to == "TO_FLOAT" else both.INT64}), *feeds)


def test_maps_of_words() -> None:
    """A map whose values are words, which ONNX Runtime's Python interface does not take."""
    feed = {"x": {3: "7", 0: "2", 1: "-4"}}
    for attrs, kind, want in (
        ({"cast_to": "TO_STRING"}, both.STRING, [["2", "-4", "7"]]),
        ({"cast_to": "TO_FLOAT"}, both.FLOAT, [[2, -4, 7]]),
        ({"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 5}, both.INT64, [[2, -4, 0, 7, 0]]),
    ):
        proto = model([node("CastMap", ["x"], ["y"], **attrs)], feed, {"y": kind})
        assert OnnxBackend.prepare(proto).run(feed)[0].tolist() == want
    proto = model([node("DictVectorizer", ["x"], ["y"], int64_vocabulary=[1, 2])], feed, {"y": both.STRING})
    assert OnnxBackend.prepare(proto).run(feed)[0].tolist() == [["-4", ""]]


def test_a_map_that_is_none_is_refused() -> None:
    made = node("DictVectorizer", ["x"], ["y"], string_vocabulary=["a"])
    prepared = OnnxBackend.prepare(model([made], {"x": {"a": 1.0}}, {"y": both.FLOAT}))
    for wrong in ([1.0], {"a": "word"}):
        with pytest.raises(TatamiError, match="InputMismatch"):
            prepared.run({"x": wrong})


def test_arithmetic_on_a_sequence_of_maps_is_refused() -> None:
    proto = model(
        [node("ZipMap", ["x"], ["t"], classlabels_int64s=[0, 1])],
        {"x": np.zeros((2, 2), np.float32)},
        {"t": maps("t", both.INT64)},
    )
    proto.graph.node.append(onnx.helper.make_node("Neg", ["t"], ["y"]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("y", both.FLOAT, None))
    with pytest.raises(TatamiError, match=r"sequence of maps|InvalidDocument"):
        OnnxBackend.prepare(proto).run({"x": np.zeros((2, 2), np.float32)})
