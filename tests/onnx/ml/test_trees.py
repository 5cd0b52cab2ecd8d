"""Ensembles of trees agree with ONNX Runtime: every mode, missing values, sums, classes and their special rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
pytest.importorskip("onnxruntime")

import tatami as tt  # noqa: E402
from tatami.api import prepare  # noqa: E402
from tatami.backends.onnx_api import OnnxBackend  # noqa: E402
from tatami.core.diagnostic import TatamiError  # noqa: E402
from tatami.runtime.building.nvrtc import has_nvrtc  # noqa: E402
from tests.cu.machine_code import compiled  # noqa: E402
from tests.onnx.ml import both, forests  # noqa: E402
from tests.onnx.ml.both import compare, model, node  # noqa: E402

COUNTS = (1, 7, 19, 0, 300)
FEATURES = 6


def feeds(dtype: Any, seed: int = 0) -> list[dict[str, np.ndarray]]:
    return [{"x": forests.rows(np.random.default_rng(seed + n), n, FEATURES, dtype)} for n in COUNTS]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("every", [False, True], ids=["a leaf of one target", "a leaf of all"])
def test_regressor_of_every_mode(dtype: Any, how: str, every: bool) -> None:
    """ONNX Runtime gives 0, not the base value, for a target that no leaf of a row is of: base values with all targets only."""
    attrs = forests.older(np.random.default_rng(3), "target", 20, 5, FEATURES, (0, 1, 2), every=every)
    base = [0.5, -1.0, 2.0] if every else None
    made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=3, aggregate_function=how, base_values=base, **attrs)
    given = [f for f in feeds(dtype) if len(f["x"])]
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


@pytest.mark.parametrize("mode", forests.MODES)
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_regressor_of_one_mode_and_one_target(mode: str, depth: int) -> None:
    attrs = forests.older(np.random.default_rng(4), "target", 9, depth, FEATURES, (0,), modes=(mode,))
    made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, base_values=[0.25], **attrs)
    given = [f for f in feeds(np.float32) if len(f["x"])]
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


def test_splits_and_weights_in_double() -> None:
    attrs = forests.older(np.random.default_rng(5), "target", 12, 4, FEATURES, (0, 1), every=True, as_double=True)
    made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=2, **attrs)
    given = [f for f in feeds(np.float64) if len(f["x"])]
    compare(model([made], given[0], {"y": both.FLOAT}), *given)


def _of_words() -> Any:
    attrs = forests.older(np.random.default_rng(6), "class", 15, 4, FEATURES, (0, 1, 2), every=True)
    made = node("TreeEnsembleClassifier", ["x"], ["y", "z"], classlabels_strings=["d", "é", "a"], **attrs)
    return model([made], feeds(np.float32)[0], {"y": both.STRING, "z": both.FLOAT})


def test_the_lists_of_a_large_forest_are_read_as_those_of_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tatami.onnx import node as reader

    monkeypatch.setattr(reader, "LONG", 4)
    compare(_of_words(), *(f for f in feeds(np.float32) if len(f["x"])))


def test_a_model_whose_results_are_words_is_imported_once_and_compiled_before_its_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tatami.onnx import load, source

    imports = []

    def counted(*arguments: Any, **named: Any) -> Any:
        imports.append(0)
        return import_model(*arguments, **named)

    import_model = load.import_model
    monkeypatch.setattr(load, "import_model", counted)
    monkeypatch.setattr(source, "import_model", counted)
    f: Any = tt.compile(_of_words())
    f(feeds(np.float32)[1])
    assert len(imports) == 1
    assert f.memory["specialisations"] == 1


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("words", "dtype"), [(False, np.float32), (True, np.float64), (False, np.int64), (True, np.int32)])
def test_classifier_of_four_classes(post: str, words: bool, dtype: Any) -> None:
    attrs = forests.older(np.random.default_rng(6), "class", 15, 4, FEATURES, (0, 1, 2, 3), every=True)
    labels: dict[str, Any] = {"classlabels_strings": ["d", "é", "", "a"]} if words else {"classlabels_int64s": [7, -2, 5, 9]}
    made = node(
        "TreeEnsembleClassifier", ["x"], ["y", "z"], post_transform=post, base_values=[0.1, 0.2, 0.0, -0.3], **labels, **attrs
    )
    given = [f for f in feeds(dtype) if len(f["x"])]
    compare(model([made], given[0], {"y": both.STRING if words else both.INT64, "z": both.FLOAT}), *given)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("of", "base"), [(0, []), (0, [0.1]), (1, [])])
def test_one_set_of_weights_for_two_classes(post: str, positive: bool, base: list[float], of: int) -> None:
    attrs = forests.older(np.random.default_rng(7), "class", 8, 4, FEATURES, (of,), positive=positive)
    made = node(
        "TreeEnsembleClassifier", ["x"], ["y", "z"], post_transform=post, base_values=base, classlabels_int64s=[5, 7], **attrs
    )
    given = [f for f in feeds(np.float32) if len(f["x"])]
    compare(model([made], given[0], {"y": both.INT64, "z": both.FLOAT}, ml=1), *given)


@pytest.mark.parametrize("of", [0, 1])
def test_base_values_of_both_classes_are_added_to_their_scores(of: int) -> None:
    """ONNX Runtime leaves out the second one, or the weights."""
    attrs = forests.older(np.random.default_rng(7), "class", 8, 4, FEATURES, (of,))
    (feed,) = [f for f in feeds(np.float32) if len(f["x"]) == 19]
    scores = []
    for base in ([], [0.1, 0.2]):
        made = node(
            "TreeEnsembleClassifier",
            ["x"],
            ["y", "z"],
            base_values=base,
            classlabels_int64s=[5, 7, 9][: 3 - bool(base)],
            **attrs,
        )
        scores.append(OnnxBackend.prepare(model([made], feed, {"y": both.INT64, "z": both.FLOAT})).run(feed)[1])
    np.testing.assert_allclose(scores[1], scores[0][:, :2] + np.array([0.1, 0.2], np.float32), 1e-5)


def test_probit_of_three_classes() -> None:
    attrs = forests.older(np.random.default_rng(8), "class", 8, 3, FEATURES, (0, 1, 2), every=True, positive=True)
    attrs["class_weights"] = [w + 0.01 for w in attrs["class_weights"]]
    made = node("TreeEnsembleClassifier", ["x"], ["y", "z"], post_transform="PROBIT", classlabels_int64s=[0, 1, 2], **attrs)
    given = [f for f in feeds(np.float32) if len(f["x"])]
    compare(model([made], given[0], {"y": both.INT64, "z": both.FLOAT}), *given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("modes", [(0,), (1, 2, 3), (4, 5), (6,), (0, 1, 2, 3, 4, 5, 6)])
def test_the_one_ensemble_of_opset_5(dtype: Any, modes: tuple[int, ...]) -> None:
    attrs = forests.newer(np.random.default_rng(9), 10, 4, FEATURES, 3, dtype, modes)
    made = node("TreeEnsemble", ["x"], ["y"], aggregate_function=1, **attrs)
    given = [f for f in feeds(dtype) if len(f["x"])]
    y = both.DOUBLE if dtype == np.float64 else both.FLOAT
    compare(model([made], given[0], {"y": y}, ml=5), *given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sets_of_halves(dtype: Any) -> None:
    """ONNX Runtime takes whole numbers only; the oracle is ONNX's reference."""
    attrs = forests.newer(np.random.default_rng(12), 10, 4, FEATURES, 2, dtype, (6,), step=2)
    made = node("TreeEnsemble", ["x"], ["y"], aggregate_function=1, **attrs)
    given = [{"x": np.nan_to_num(f["x"], nan=0.5, posinf=1.5, neginf=-1.5)} for f in feeds(dtype) if len(f["x"])]
    proto = model([made], given[0], {"y": both.DOUBLE if dtype == np.float64 else both.FLOAT}, ml=5)
    prepared, oracle = OnnxBackend.prepare(proto), onnx.reference.ReferenceEvaluator(proto)
    for feed in given:
        both.same(prepared.run(feed), tuple(oracle.run(None, feed)))


def test_no_rows() -> None:
    attrs = forests.older(np.random.default_rng(10), "target", 5, 3, FEATURES, (0,))
    made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **attrs)
    x = np.zeros((0, FEATURES), np.float32)
    assert OnnxBackend.prepare(model([made], {"x": x}, {"y": both.FLOAT})).run({"x": x})[0].shape == (0, 1)


def test_both_classes_with_weights_give_the_top_class() -> None:
    """ONNX Runtime gives 1 where the second score is above 0, whatever the first is; the operator's text: the top class."""
    attrs = forests.older(np.random.default_rng(11), "class", 9, 3, FEATURES, (0, 1), every=True, positive=True)
    made = node("TreeEnsembleClassifier", ["x"], ["y", "z"], classlabels_int64s=[5, 7], **attrs)
    (feed,) = [f for f in feeds(np.float32) if len(f["x"]) == 19]
    proto = model([made], feed, {"y": both.INT64, "z": both.FLOAT})
    y, z = OnnxBackend.prepare(proto).run(feed)
    both.same(z, both.runtime(proto, feed)[1])
    assert np.array_equal(y, np.array([5, 7])[z.argmax(1)]) and len(np.unique(y)) == 2


WRONG: dict[str, dict[str, Any]] = {
    "a node that is not there": {"nodes_truenodeids": [9, 0, 0]},
    "an end": {"nodes_modes": ["BRANCH_LEQ"] * 3, "nodes_truenodeids": [1, 1, 1], "nodes_falsenodeids": [2, 2, 2]},
    "two nodes of one id": {"nodes_nodeids": [0, 1, 1]},
    "for 3 nodes": {"nodes_values": [0.0]},
    "mode": {"nodes_modes": ["BRANCH", "LEAF", "LEAF"]},
    "output 4": {"target_ids": [0, 4]},
    "feature below 0": {"nodes_featureids": [-1, 0, 0]},
    "features of": {"nodes_featureids": [6, 0, 0]},
    "base_values": {"base_values": [1.0, 2.0, 3.0]},
}


@pytest.mark.parametrize("reason", WRONG)
def test_trees_that_are_none_are_refused(reason: str) -> None:
    stump: dict[str, Any] = {
        "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3, "nodes_values": [0.0] * 3,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    made = node("TreeEnsembleRegressor", ["x"], ["y"], **(stump | WRONG[reason]))
    proto = model([made], {"x": np.zeros((2, FEATURES), np.float32)}, {"y": both.FLOAT})
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = FEATURES
    with pytest.raises(TatamiError, match=reason):
        OnnxBackend.prepare(proto)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", ["SUM", "MIN", "MAX"])
def test_trees_on_an_emulated_gpu(dtype: Any, how: str) -> None:
    attrs = forests.older(np.random.default_rng(13), "target", 6, 4, FEATURES, (0, 1))
    made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=2, aggregate_function=how, **attrs)
    given = [f for f in feeds(dtype) if len(f["x"])]
    proto = model([made], given[0], {"y": both.FLOAT})
    f = tt.compile(proto, target="emulated-sm80")
    for feed in given[:3]:
        both.same(f(feed)["y"], both.runtime(proto, feed)[0])


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("how", ["SUM", "MIN", "MAX"])
def test_the_text_for_a_gpu_needs_nothing_that_nvrtc_lacks(how: str) -> None:
    """The compiler of the emulated GPU has C's headers; NVRTC does not have them."""
    attrs = forests.older(np.random.default_rng(13), "target", 6, 4, FEATURES, (0, 1))
    made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=2, aggregate_function=how, **attrs)
    proto = model([made], feeds(np.float32)[0], {"y": both.FLOAT})
    source = prepare(proto.SerializeToString(), target="sm90").stages["cu"].main
    for unit in source.units:
        assert compiled(unit, source.headers)
