"""Quantised models against ONNX Runtime, and against the model that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tatami as tt
from tests.quantization.models import by_runtime, by_tatami, distance, model_of, numbers, perceptron, pictures

X, IMAGES = numbers(5, 96, seed=9), numbers(3, 3, 12, 12, seed=9)
SAMPLES = [{"x": numbers(64, 96, seed=20 + k)} for k in range(8)]
VIEWS = [{"x": numbers(2, 3, 12, 12, seed=20 + k)} for k in range(8)]

WEIGHTS = [
    ("int4", 0.2, {"MatMul": 1, "Gemm": 2, "DequantizeLinear": 3}),
    ("int8", 0.01, {"DequantizeLinear": 3}),
    ({"weights": "int4", "block": 16}, 0.15, {"DequantizeLinear": 3}),
    ({"weights": "int4", "block": 0}, 0.3, {"DequantizeLinear": 3}),
    ({"weights": "int8", "block": 0}, 0.02, {"DequantizeLinear": 3}),
    ({"weights": "int4", "form": "MatMulNBits"}, 0.2, {"MatMulNBits": 3, "Add": 1}),
    ({"weights": "int8", "form": "MatMulNBits", "block": 64}, 0.01, {"MatMulNBits": 3}),
    ("dynamic", 0.03, {"MatMulInteger": 3, "DynamicQuantizeLinear": 3, "Add": 1}),
]


def operators(model: onnx.ModelProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in model.graph.node:
        found[node.op_type] = found.get(node.op_type, 0) + 1
    return found


@pytest.mark.parametrize(("mode", "most", "holds"), WEIGHTS)
def test_both_runtimes_agree_on_weights_of_products(mode: object, most: float, holds: dict[str, int]) -> None:
    model = perceptron()
    made = tt.quantize(model, mode).model
    onnx.checker.check_model(made, full_check=True)
    assert holds.items() <= operators(made).items()
    assert {"a", "b", "c"}.isdisjoint(t.name for t in made.graph.initializer)
    theirs, ours = by_runtime(made, x=X), by_tatami(made, x=X)
    assert distance(ours, theirs) < 1e-5
    assert 0 < distance(ours, by_runtime(model, x=X)) < most


@pytest.mark.parametrize("ranges", ["minmax", "percentile", "entropy"])
@pytest.mark.parametrize(
    ("make", "samples", "x"), [(perceptron, SAMPLES, X), (pictures, VIEWS, IMAGES)], ids=["products", "convolutions"]
)
def test_static_ranges(make: Callable[[], Any], samples: list[dict[str, np.ndarray]], x: np.ndarray, ranges: str) -> None:
    model = make()
    made = tt.quantize(model, {"activations": "static", "ranges": ranges}, calibration=samples)
    onnx.checker.check_model(made.model, full_check=True)
    theirs, ours = by_runtime(made.model, x=x), by_tatami(made.model, x=x)
    assert distance(ours, theirs) < 2e-3  # a value between two codes may go to either
    assert 1e-4 < distance(ours, by_runtime(model, x=x)) < 0.1
    assert all("static" in row.form for row in made.layers)


def test_filters_of_convolutions() -> None:
    model = pictures()
    made = tt.quantize(model, "int8").model
    assert {"a", "d", "p", "w"}.isdisjoint(t.name for t in made.graph.initializer)
    assert distance(by_tatami(made, x=IMAGES), by_runtime(made, x=IMAGES)) < 1e-5
    assert distance(by_tatami(made, x=IMAGES), by_runtime(model, x=IMAGES)) < 0.02


def test_a_depth_that_blocks_do_not_divide() -> None:
    for mode in ("int4", {"weights": "int4", "form": "MatMulNBits"}):
        model = perceptron(depth=50)
        made = tt.quantize(model, mode).model
        x = numbers(5, 50, seed=9)
        assert distance(by_tatami(made, x=x), by_runtime(made, x=x)) < 1e-5


def test_older_operators_are_converted_where_blocks_need_newer_ones() -> None:
    made = tt.quantize(perceptron(opset=13), "int4").model
    assert made.opset_import[0].version >= 21
    assert distance(by_tatami(made, x=X), by_runtime(made, x=X)) < 1e-5
    assert tt.quantize(perceptron(opset=13), "dynamic").model.opset_import[0].version == 13


def test_weights_that_layers_share_are_shared() -> None:
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["a"], "one"),
        onnx.helper.make_node("MatMul", ["a", "w"], ["b"], "two"),
        onnx.helper.make_node("Gather", ["w", "index"], ["rows"], "rows"),
        onnx.helper.make_node("Add", ["b", "rows"], ["y"]),
    ]
    constants = {"w": numbers(96, 96), "index": np.arange(5)}
    model = model_of(nodes, constants, {"x": [5, 96]}, ["y"])
    for mode in ("dynamic", {"form": "MatMulNBits"}):
        names = [t.name for t in tt.quantize(model, mode).model.graph.initializer]
        assert sorted(names) == ["index", "w", "w_codes", "w_scales"]
    made = tt.quantize(model, "int8").model
    assert operators(made)["DequantizeLinear"] == 1
    assert "w" in {t.name for t in made.graph.initializer}  # rows are looked up in it
    assert distance(by_tatami(made, x=X), by_runtime(made, x=X)) < 1e-5


def test_weights_of_fp16_have_scales_of_fp16() -> None:
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["n"], to=onnx.TensorProto.FLOAT16),
        onnx.helper.make_node("MatMul", ["n", "w"], ["m"], "layer"),
        onnx.helper.make_node("Cast", ["m"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    model = model_of(nodes, {"w": (numbers(96, 40) * 0.1).astype(np.float16)}, {"x": ["N", 96]}, ["y"])
    made = tt.quantize(model, "int8").model
    assert distance(by_tatami(made, x=X), by_runtime(made, x=X)) < 3e-3


def replaceable(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with a constant that callers may replace."""
    held = next(t for t in model.graph.initializer if t.name == name)
    model.graph.input.append(onnx.helper.make_tensor_value_info(name, held.data_type, list(held.dims)))
    return model


def test_a_bias_that_callers_may_replace_stays_an_input() -> None:
    model = replaceable(perceptron(), "bias")
    made = tt.quantize(model, "static", calibration=[X]).model
    for bias in ({}, {"bias": np.full(80, 2, np.float32)}):
        assert distance(by_runtime(made, x=X, **bias), by_runtime(model, x=X, **bias)) < 0.1
    assert distance(by_runtime(made, x=X), by_runtime(made, x=X, bias=np.full(80, 2, np.float32))) > 0.5


def test_a_layer_whose_operand_calibration_does_not_see_stays() -> None:
    nodes = [
        onnx.helper.make_node("MatMul", ["start", "w"], ["a"], "unseen"),
        onnx.helper.make_node("MatMul", ["x", "w"], ["b"], "seen"),
        onnx.helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    model = replaceable(model_of(nodes, {"w": numbers(96, 40), "start": numbers(1, 96)}, {"x": ["N", 96]}, ["y"]), "start")
    made = tt.quantize(model, "static", calibration=[X])
    assert [row.form for row in made.layers] == [
        "calibration gave no number of its left operand",
        "int8, static, a scale per column",
    ]
    assert operators(made.model)["QuantizeLinear"] == 1


def test_layers_of_one_name_have_a_sensitivity_each() -> None:
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "v"], ["h"], "same"),
        onnx.helper.make_node("MatMul", ["h", "w"], ["y"], "same"),
    ]
    outlier = np.where(np.arange(96)[:, None] % 32, numbers(96, 96), 100).astype(np.float32)
    model = model_of(nodes, {"v": outlier, "w": numbers(96, 96, seed=1)}, {"x": ["N", 96]}, ["y"])
    one, two = (row.sensitivity for row in tt.quantize(model, "int4", sensitivity=True).layers)
    assert one is not None and two is not None and one != two


def test_the_given_model_stays_as_it_is() -> None:
    model = perceptron()
    model.ir_version = 9
    before = model.SerializeToString()
    assert tt.quantize(model, "int4").model.ir_version == 10
    assert model.SerializeToString() == before


def test_excluded_layers_stay() -> None:
    made = tt.quantize(perceptron(), {"weights": "int8", "exclude": ["first"]}, exclude=["third"])
    assert [row.form for row in made.layers] == ["excluded", "int8, blocks of 32", "excluded"]
    assert {"a", "c"} <= {t.name for t in made.model.graph.initializer}


def test_names_of_the_model_are_not_taken() -> None:
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["w_codes"], "w_values"),
        onnx.helper.make_node("MatMul", ["w_codes", "w_scales"], ["y"], "w_scales_DequantizeLinear"),
    ]
    model = model_of(nodes, {"w": numbers(96, 96), "w_scales": numbers(96, 96)}, {"x": ["N", 96]}, ["y"])
    for mode in ("int8", "dynamic", {"form": "MatMulNBits"}):
        made = tt.quantize(model, mode).model
        assert distance(by_tatami(made, x=X), by_runtime(made, x=X)) < 1e-4


def test_sensitivity_tells_the_layer_that_costs_most() -> None:
    """The second layer's weights have one outlier in each block, so that the others lose their digits."""
    model = perceptron()
    weight = next(t for t in model.graph.initializer if t.name == "b")
    changed = onnx.numpy_helper.to_array(weight).copy()
    changed[:, ::32] = 30
    weight.CopyFrom(onnx.numpy_helper.from_array(changed, "b"))
    made = tt.quantize(model, "int4", sensitivity=True)
    found = {row.name: row.sensitivity for row in made.layers}
    assert all(v is not None and v > 0 for v in found.values())
    alone = {}
    for name in found:
        others = [n for n in found if n != name]
        one = tt.quantize(model, "int4", exclude=others).model
        x = np.random.default_rng(0).standard_normal((2, 96)).astype(np.float32)
        alone[name] = distance(by_runtime(one, x=x), by_runtime(model, x=x))
    assert sorted(found, key=lambda n: found[n] or 0) == sorted(alone, key=lambda n: alone[n])
    assert made.table().splitlines()[1].startswith(max(alone, key=lambda n: alone[n]))


def test_a_saved_model_runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tt.quantize(perceptron(), "int4")
    want = by_tatami(made.model, x=X)
    path = made.save(tmp_path / "small.onnx")
    np.testing.assert_array_equal(tt.compile(path)(x=X)["y"], want)
    monkeypatch.setattr("tatami.quantization.api.MOST_IN_ONE_FILE", 100)
    path = made.save(tmp_path / "apart.onnx")
    size = (tmp_path / "apart.onnx.data").stat().st_size
    assert made.save(tmp_path / "apart.onnx") == path
    assert (tmp_path / "apart.onnx.data").stat().st_size == size  # nothing of an earlier file is left in it
    np.testing.assert_array_equal(tt.compile(path)(x=X)["y"], want)
    again = tt.quantize(tt.quantize(perceptron(), "int8", exclude=["first", "third"]).save(tmp_path / "m.onnx"), "int4")
    assert [row.name for row in again.layers] == ["first", "third"]


@pytest.mark.parametrize("mode", ["int4", "int8", "static"])
def test_a_trained_network_keeps_its_answers(mode: str) -> None:
    folder = Path(__file__).parents[2] / "examples" / "digits"
    held = np.load(folder / "held_out.npz")
    images, labels = held["image"], held["label"]
    calibration = [images[:100]] if mode == "static" else None
    made = tt.quantize(folder / "digits.onnx", mode, calibration=calibration)
    right = {
        name: float((by_tatami(model, image=images).argmax(1) == labels).mean())
        for name, model in (("whole", onnx.load_model(str(folder / "digits.onnx"))), (mode, made.model))
    }
    assert right[mode] > right["whole"] - 0.01
