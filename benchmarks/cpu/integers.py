"""Products of 8-bit integers with weights, as in quantised models: sums of 32 bits; requantised; of rows that are
quantised by what they hold; between dequantisations; under rows of fp32; of an LSTM. PyTorch has no such operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.cpu.case import Arrays, Case, random, save_model

SQUARES = (128, 512, 1024)
LAYERS = ((1, 4096, 4096), (128, 3072, 768), (128, 768, 3072))
FEW_ROWS = ((1, 4096, 4096), (4, 4096, 4096), (1, 32000, 1024))
LSTMS = ((1, 80, 40, 768), (1, 32, 512, 256))
"""Rows, steps, inputs, width of the state."""


def cases() -> Iterator[Case]:
    from onnx import TensorProto, helper

    zero, one = np.array(131, np.uint8), np.array(0.02, np.float32)
    for m, n, k in (*((s, s, s) for s in SQUARES), *LAYERS):
        sums = [helper.make_node("MatMulInteger", ["a", "w", "z"], ["y"])]
        yield _case("sums", m, n, k, sums, {"z": zero}, np.int32)
    for m, n, k in LAYERS:
        points: dict[str, np.ndarray] = {"z": zero, "wz": np.array(0, np.int8), "s": one, "ys": np.array(40.0, np.float32)}
        node = helper.make_node("QLinearMatMul", ["a", "s", "z", "w", "s", "wz", "ys", "z"], ["y"])
        yield _case("requantised", m, n, k, [node], points, np.uint8)
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "s", "z"]),
            helper.make_node("MatMulInteger", ["q", "w", "z"], ["t"]),
            helper.make_node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "s"], ["y"]),
        ]
        yield _case("dynamic", m, n, k, nodes, {}, np.float32)
        steps = np.array(0.03, np.float32), np.array(40.0, np.float32)
        points = {"z": zero, "wz": np.array(0, np.int8), "s": steps[0], "ws": steps[0], "ys": steps[1]}
        nodes = [
            helper.make_node("QuantizeLinear", ["a", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["x"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"]),
            helper.make_node("MatMul", ["x", "b"], ["t"]),
            helper.make_node("QuantizeLinear", ["t", "ys", "z"], ["y"]),
        ]
        yield _case("QDQ", m, n, k, nodes, points, np.uint8)
    for m, n, k in FEW_ROWS:
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "ws"], ["b"], axis=1),
            helper.make_node("MatMul", ["a", "b"], ["y"]),
        ]
        yield _case("weights", m, n, k, nodes, {"ws": np.linspace(0.01, 0.02, n, dtype=np.float32)}, np.float32)
    for rows, steps_, inputs, width in LSTMS:
        yield _lstm(rows, steps_, inputs, width)


def _lstm(rows: int, steps: int, inputs: int, width: int) -> Case:
    """DynamicQuantizeLSTM, whose products' right operands are read again at each step."""
    from onnx import helper

    def arrays() -> Arrays:
        return {"x": random(steps, rows, inputs)}

    def model(path: str) -> None:
        generator = np.random.default_rng(0)
        weights: Arrays = {
            name: generator.integers(-127, 128, (1, k, 4 * width)).astype(np.int8) for name, k in (("w", inputs), ("r", width))
        }
        weights |= {"s": np.array([0.002], np.float32), "z": np.array([0], np.int8), "b": random(1, 8 * width, scale=0.1)}
        node = helper.make_node(
            "DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "s", "z", "s", "z"], ["y"], domain="com.microsoft", hidden_size=width,
        )  # fmt: skip
        save_model(path, [node], arrays(), weights, result=(steps, 1, rows, width))

    flops = 2.0 * steps * rows * 4 * width * (inputs + width)
    return Case(f"int8 LSTM {rows}x{steps}x{inputs}x{width}", "int8", model, arrays, None, None, flops)


def _case(name: str, m: int, n: int, k: int, nodes: list[Any], more: Arrays, result: Any) -> Case:
    """`nodes` compute y from a, numbers where they quantise it themselves, and the weights w."""

    def drawn(low: int, high: int, dtype: Any, *shape: int) -> np.ndarray:
        return np.random.default_rng(low + high).integers(low, high, shape, dtype)

    def inputs() -> Arrays:
        return {"a": drawn(0, 256, np.uint8, m, k) if name in ("sums", "requantised") else random(m, k)}

    def model(path: str) -> None:
        weights = {"w": drawn(-127, 128, np.int8, k, n), **more}
        save_model(path, nodes, inputs(), weights, kind=result)

    return Case(f"int8 {name} {m}x{n}x{k}", "int8", model, inputs, None, None, 2.0 * m * n * k)
