"""Resize whose sizes are open: every coordinate mode by scales and to the size of another tensor, as in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tatami as tt

MODES = [
    ("half_pixel", "linear", ""), ("half_pixel", "cubic", ""), ("half_pixel", "nearest", "round_prefer_ceil"),
    ("half_pixel_symmetric", "linear", ""), ("half_pixel_symmetric", "nearest", "round_prefer_ceil"), ("pytorch_half_pixel", "linear", ""),
    ("pytorch_half_pixel", "cubic", ""), ("align_corners", "linear", ""), ("align_corners", "nearest", "round_prefer_floor"),
    ("align_corners", "cubic", ""), ("asymmetric", "nearest", "floor"), ("asymmetric", "linear", ""),
]  # fmt: skip


def value(name: str, *shape: int | str) -> object:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def compared(model: ModelProto, *feeds: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    function = tt.compile(model, threads=1)
    for feed in feeds:
        np.testing.assert_allclose(function(feed)["y"], session.run(None, feed)[0], 1e-4, 1e-5)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def node(coordinates: str, mode: str, nearest: str, inputs: list[str]) -> object:
    more = {"nearest_mode": nearest} if nearest else {}
    return helper.make_node("Resize", inputs, ["y"], mode=mode, coordinate_transformation_mode=coordinates, **more)


@pytest.mark.parametrize(("coordinates", "mode", "nearest"), MODES)
def test_open_axes_are_resized_by_scales(coordinates: str, mode: str, nearest: str) -> None:
    scales = numpy_helper.from_array(np.array([1, 1, 2, 3], np.float32), "scales")
    graph = helper.make_graph(
        [node(coordinates, mode, nearest, ["x", "", "scales"])], "g", [value("x", 1, 2, "H", "W")], [value("y", 1, 2, "P", "Q")], [scales]
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    compared(model, {"x": drawn(1, 2, 4, 6)}, {"x": drawn(1, 2, 9, 5)}, {"x": drawn(1, 2, 1, 1)})


@pytest.mark.parametrize(("coordinates", "mode", "nearest"), MODES)
def test_open_axes_are_resized_to_the_size_of_another_tensor(coordinates: str, mode: str, nearest: str) -> None:
    constants = {"first": np.array([2]), "last": np.array([4]), "lead": np.array([1, 2])}
    nodes = [
        helper.make_node("Shape", ["skip"], ["shape"]),
        helper.make_node("Slice", ["shape", "first", "last"], ["size"]),
        helper.make_node("Concat", ["lead", "size"], ["to"], axis=0),
        node(coordinates, mode, nearest, ["x", "", "", "to"]),
    ]
    inputs = [value("x", 1, 2, "h", "w"), value("skip", 1, 3, "H", "W")]
    initialisers = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 1, 2, "H", "W")], initialisers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    pairs = (((4, 6), (8, 12)), ((4, 6), (9, 11)), ((5, 5), (3, 20)), ((4, 6), (1, 1)))
    compared(model, *({"x": drawn(1, 2, *small), "skip": drawn(1, 3, *large)} for small, large in pairs))


@pytest.mark.parametrize("scale", [0.5, 1.5, 0.75, 2.5])
def test_open_axes_take_scales_that_are_fractions(scale: float) -> None:
    scales = numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "scales")
    graph = helper.make_graph(
        [node("half_pixel", "linear", "", ["x", "", "scales"])], "g", [value("x", 1, 1, "H", "W")], [value("y", 1, 1, "P", "Q")], [scales]
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    compared(model, {"x": drawn(1, 1, 4, 6)}, {"x": drawn(1, 1, 9, 5)})


@pytest.mark.parametrize(
    ("scale", "sizes"),
    [(7 / 3, (27, 26)), (1.3, (90, 89)), (31 / 10, (330, 7)), (0.333333, (3, 4)), (0.123, (100, 9)), (1 / 300, (600, 299 * 2))],
)
def test_open_sizes_take_the_floor_of_the_product_in_fp32(scale: float, sizes: tuple[int, int]) -> None:
    """27 times the fp32 number below 7/3 is 62.99, and 3 times 0.333333 is below 1."""
    scales = numpy_helper.from_array(np.array([1, 1, scale, 1], np.float32), "scales")
    graph = helper.make_graph(
        [node("asymmetric", "nearest", "floor", ["x", "", "scales"])], "g", [value("x", 1, 1, "H", "W")], [value("y", 1, 1, "P", "Q")], [scales]
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    compared(model, *({"x": drawn(1, 1, size, 2)} for size in sizes))


def test_a_size_that_data_decide_is_divided_by_a_scale() -> None:
    """Frames of 300 samples: 600 S samples times 1/300 are 2 S."""
    scales = numpy_helper.from_array(np.array([1, 1, 1 / 300], np.float32), "scales")
    nodes = [
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Gather", ["x", "places"], ["frames"], axis=1),
        helper.make_node("Reshape", ["frames", "to"], ["samples"]),
        node("half_pixel", "linear", "", ["samples", "", "scales"]),
    ]
    constants = [scales, numpy_helper.from_array(np.array([1, 1, -1]), "to")]
    inputs = [value("mask", "F"), value("x", 1, "F", 600)]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 1, 1, "P")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    compared(model, *({"mask": (np.arange(f) % 3 > 0).astype(np.float32), "x": drawn(1, f, 600)} for f in (5, 8)))


@pytest.mark.parametrize("nearest", ["ceil", "floor", "round_prefer_ceil", "round_prefer_floor"])
def test_axes_that_keep_their_size_are_left_alone(nearest: str) -> None:
    """(i + 1/2) / 1 is not a whole number: batch and channels would move, as they did elsewhere."""
    scales = numpy_helper.from_array(np.array([1, 1, 3, 3], np.float32), "k")
    roi = numpy_helper.from_array(np.zeros(0, np.float32), "r")
    graph = helper.make_graph(
        [node("tf_half_pixel_for_nn", "nearest", nearest, ["x", "r", "k"])], "g", [value("x", 2, 3, 4, 4)], [value("y", 2, 3, 12, 12)], [roi, scales]
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    x = drawn(2, 3, 4, 4)
    at = (np.arange(12) + 0.5) / 3
    rules: dict[str, Callable[..., np.ndarray]] = {
        "ceil": np.ceil,
        "floor": np.floor,
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    rule = rules.get(nearest, lambda v: np.ceil(v - 0.5))
    places = rule(at).clip(0, 3).astype(int)
    np.testing.assert_array_equal(tt.compile(model, threads=1)(x=x)["y"], x[:, :, places][..., places])
