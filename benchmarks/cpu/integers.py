"""Products of 8-bit integers with weights, as quantised models have them: sums of 32 bits; requantised; of rows that are
quantised by what they hold. PyTorch has no such operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.cpu.cases import Arrays, Case, random, save_model

SQUARES = (128, 512, 1024)
LAYERS = ((1, 4096, 4096), (128, 3072, 768), (128, 768, 3072))


def cases() -> Iterator[Case]:
    from onnx import TensorProto, helper

    zero, one = np.array(131, np.uint8), np.array(0.02, np.float32)
    for m, n, k in (*((s, s, s) for s in SQUARES), *LAYERS):
        sums = [helper.make_node("MatMulInteger", ["a", "w", "z"], ["y"])]
        yield _case("sums", m, n, k, sums, {"z": zero}, np.int32)
    for m, n, k in LAYERS:
        points = {"z": zero, "wz": np.array(0, np.int8), "s": one, "ys": np.array(40.0, np.float32)}
        node = helper.make_node("QLinearMatMul", ["a", "s", "z", "w", "s", "wz", "ys", "z"], ["y"])
        yield _case("requantised", m, n, k, [node], points, np.uint8)
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "s", "z"]),
            helper.make_node("MatMulInteger", ["q", "w", "z"], ["t"]),
            helper.make_node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "s"], ["y"]),
        ]
        yield _case("dynamic", m, n, k, nodes, {}, np.float32)


def _case(name: str, m: int, n: int, k: int, nodes: list[Any], more: Arrays, result: Any) -> Case:
    """`nodes` compute y from a, numbers where they quantise it themselves, and the weights w."""

    def drawn(low: int, high: int, dtype: Any, *shape: int) -> np.ndarray:
        return np.random.default_rng(low + high).integers(low, high, shape, dtype)

    def inputs() -> Arrays:
        return {"a": random(m, k) if name == "dynamic" else drawn(0, 256, np.uint8, m, k)}

    def model(path: str) -> None:
        weights = {"w": drawn(-127, 128, np.int8, k, n), **more}
        save_model(path, nodes, inputs(), weights, kind=result)

    return Case(f"int8 {name} {m}x{n}x{k}", "int8", model, inputs, None, None, 2.0 * m * n * k)
