"""Small models with random weights, and the ways to run them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tatami as tt

WIDTH, HIDDEN, CLASSES = 96, 80, 24


def model_of(
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    opset: int = 21,
) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "C"]) for n in outputs]
    held = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "model", ports, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def perceptron(opset: int = 21, depth: int = WIDTH) -> onnx.ModelProto:
    """A MatMul, and two Gemms with and without a transposed weight."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"], "first"),
        helper.make_node("Relu", ["xa"], ["h"]),
        helper.make_node("Gemm", ["h", "b", "bias"], ["hb"], "second", transB=1),
        helper.make_node("Tanh", ["hb"], ["t"]),
        helper.make_node("Gemm", ["t", "c"], ["y"], "third"),
    ]
    constants = {
        "a": numbers(depth, HIDDEN, seed=1) * np.float32(0.1),
        "b": numbers(HIDDEN, HIDDEN, seed=2) * np.float32(0.1),
        "bias": numbers(HIDDEN, seed=3),
        "c": numbers(HIDDEN, CLASSES, seed=4) * np.float32(0.1),
    }
    return model_of(nodes, constants, {"x": ["N", depth]}, ["y"], opset)


def pictures(opset: int = 17) -> onnx.ModelProto:
    """Convolutions with windows, a stride, groups and without a window, then a product."""
    nodes = [
        helper.make_node("Conv", ["x", "a", "abias"], ["xa"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["xa"], ["h"]),
        helper.make_node("Conv", ["h", "d"], ["hd"], "depthwise", pads=[1, 1, 1, 1], strides=[2, 2], group=16),
        helper.make_node("Conv", ["hd", "p", "pbias"], ["hp"], "pointwise"),
        helper.make_node("GlobalAveragePool", ["hp"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "wbias"], ["y"], "classes", transB=1),
    ]
    constants = {
        "a": numbers(16, 3, 3, 3, seed=1), "abias": numbers(16, seed=2), "d": numbers(16, 1, 3, 3, seed=3),
        "p": numbers(32, 16, 1, 1, seed=4), "pbias": numbers(32, seed=5), "w": numbers(CLASSES, 32, seed=6),
        "wbias": numbers(CLASSES, seed=7),
    }  # fmt: skip
    return model_of(nodes, constants, {"x": ["N", 3, 12, 12]}, ["y"], opset)


def by_runtime(model: onnx.ModelProto, **inputs: np.ndarray) -> np.ndarray:
    """The first output by ONNX Runtime, as the model says it: without its own fusions."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, inputs)[0]
    return found


def by_tatami(model: onnx.ModelProto, **inputs: np.ndarray) -> np.ndarray:
    (found,) = tt.compile(model)(**inputs).values()
    return np.asarray(found)


def distance(found: np.ndarray, want: np.ndarray) -> float:
    """Norm of the difference, relative to what is wanted."""
    return float(np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want))
