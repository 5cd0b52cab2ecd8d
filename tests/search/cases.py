"""The benchmark's kinds of Regions, at sizes that are compiled and checked in a moment."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from benchmarks.cpu import attention, convolution, gemm, rows
from benchmarks.cpu.case import Arrays, Case, random, save_model

IMAGE = (2, 32, 16, 16)
IMAGES = (64, 144)
"""Channels and pixels."""
MATRIX = (48, 96)


@cache
def small_cases() -> dict[str, Case]:
    """Cases by name. Tiles do not divide the sides, so that the last ones are partial."""
    found = [
        gemm.product(50, 80, 96),
        gemm.product(50, 48, 64, batch=3),
        gemm.product(2, 96, 512),
        gemm.layer("small", 40, 96, 64, gelu=True),
        gemm.layer("one row", 1, 160, 96, gelu=False),
        convolution.convolution(32, 48, 14, 3, 1, 1),
        convolution.convolution(32, 32, 15, 3, 2, 1),
        convolution.convolution(32, 48, 10, 1, 1, 1),
        convolution.convolution(3, 32, 20, 7, 2, 1),
        convolution.convolution(32, 32, 18, 3, 1, 32),
        attention.attention(48, causal=False),
        attention.attention(48, causal=True),
        *(rows.KINDS[kind](kind, IMAGES if kind.startswith(("group", "batch")) else MATRIX) for kind in rows.KINDS),
        _pooled(),
        _integers(),
        _resized_parts(),
    ]
    return {case.name: case for case in found}


def _case(name: str, inputs: Arrays, nodes: list[object], weights: Arrays, **model: object) -> Case:
    def write(path: str) -> None:
        save_model(path, nodes, inputs, weights, **model)  # type: ignore[arg-type]

    return Case(name, "small", write, lambda: inputs, None)


def _pooled() -> Case:
    from onnx import helper

    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    return _case("max pool", {"x": random(*IMAGE)}, [node], {})


def _integers() -> Case:
    import numpy as np
    from onnx import helper

    drawn = np.random.default_rng(3)
    a, w = drawn.integers(0, 256, (40, 64), np.uint8), drawn.integers(-63, 64, (64, 80), np.int8)
    node = helper.make_node("MatMulInteger", ["a", "w", "z"], ["y"])
    return _case("int8 sums", {"a": a}, [node], {"w": w, "z": np.array(131, np.uint8)}, kind=np.int32)


def _resized_parts() -> Case:
    """Images of two sizes, brought to one and concatenated: the decoder of a segmentation."""
    import numpy as np
    from onnx import helper

    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["wide"], mode="linear", coordinate_transformation_mode="half_pixel"),
        helper.make_node("Concat", ["wide", "z"], ["both"], axis=1),
        helper.make_node("Relu", ["both"], ["y"]),
    ]
    inputs = {"x": random(1, 4, 8, 8), "z": random(1, 3, 16, 16, seed=1)}
    return _case("resize in a concatenation", inputs, nodes, {"scales": np.array([1, 1, 2, 2], np.float32)})


CALLS = """graph<B=1> block(x: f32[B, 48], w: f32[48, 48]) -> (y: f32[B, 48]) {
    return (x @ w).relu().softmax(axis=1)
}

graph main(x: f32[20, 48], w: f32[48, 48]) -> (y: f32[20, 48]) {
    return block(block(x, w), w)
}
"""


def called_twice(folder: Path) -> tuple[Path, Arrays]:
    """A model that calls one graph twice, as a file, and its inputs."""
    path = folder / "calls.harp"
    path.write_text(CALLS, encoding="utf-8")
    return path, {"x": random(20, 48), "w": random(48, 48, seed=1)}


def model_of(case: Case, folder: Path) -> Path:
    """The model of a case as a file."""
    path = folder / f"{abs(hash(case.name))}.onnx"
    case.onnx(str(path))
    return path
