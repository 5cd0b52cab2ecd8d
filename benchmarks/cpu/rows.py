"""Operators that memory bounds: softmax, norms, GELU, transposes, reductions, sums, of 10^4 to 10^7 elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.cpu.case import Arrays, Case, random, save_model
from benchmarks.cpu.gemm import ByFunction

SHAPES = ((64, 160), (768, 128), (1024, 1024), (2560, 4096))
"""10^4, 10^5, 10^6 and 10^7 elements."""


def cases() -> Iterator[Case]:
    for shape in SHAPES:
        for name in KINDS:
            yield KINDS[name](name, shape)


def _case(
    name: str,
    shape: tuple[int, ...],
    node: Any,
    weights: Arrays,
    torch_of: Callable[[Any], Callable[[Any], Any]],
    numpy: Callable[[np.ndarray], np.ndarray] | None,
    moved: float = 2.0,
    kind: Any = np.float32,
    drawn: Callable[..., np.ndarray] = random,
    **model: Any,
) -> Case:
    """The case of an operator on one input. `moved`: elements read and written per element of the input; `kind`: dtype of the
    output; `drawn`: makes the input of a shape; `model`: further arguments of `save_model`."""

    def inputs() -> Arrays:
        return {"x": drawn(*shape)}

    def module() -> Any:
        import torch

        return ByFunction.of(torch_of(torch))

    def by_numpy(x: Mapping[str, np.ndarray]) -> np.ndarray:
        assert numpy is not None
        return numpy(x["x"])

    title = f"{name} {'x'.join(map(str, shape))}"
    return Case(
        title,
        "rows",
        lambda p: save_model(p, [node], inputs(), weights, kind=kind, **model),
        inputs,
        module,
        by_numpy if numpy is not None else None,
        bytes=4.0 * moved * float(np.prod(shape)),
        quick=math.prod(shape) == math.prod(SHAPES[1]),
    )


def softmax(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    def by_numpy(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return _case(
        name, shape, helper.make_node("Softmax", ["x"], ["y"], axis=-1), {}, lambda t: lambda x: t.softmax(x, -1), by_numpy
    )


def layer_norm(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    n = shape[-1]
    weights = {"g": random(n, seed=1), "b": random(n, seed=2)}

    def of(torch: Any) -> Callable[[Any], Any]:
        g, b = torch.from_numpy(weights["g"]), torch.from_numpy(weights["b"])
        return lambda x: torch.nn.functional.layer_norm(x, (n,), g, b, 1e-5)

    return _case(name, shape, helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], epsilon=1e-5), weights, of, None)


def rms_norm(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    n = shape[-1]
    weights = {"g": random(n, seed=1)}

    def of(torch: Any) -> Callable[[Any], Any]:
        g = torch.from_numpy(weights["g"])
        return lambda x: torch.nn.functional.rms_norm(x, (n,), g, 1e-5)

    return _case(
        name, shape, helper.make_node("RMSNormalization", ["x", "g"], ["y"], epsilon=1e-5), weights, of, None, opset=23
    )


def group_norm(name: str, shape: tuple[int, ...]) -> Case:
    """Group norm of an image whose channels are the rows, in 32 groups."""
    from onnx import helper

    image = _image(shape)
    weights = {"g": random(image[1], seed=1), "b": random(image[1], seed=2)}
    node = helper.make_node("GroupNormalization", ["x", "g", "b"], ["y"], num_groups=32, epsilon=1e-5)

    def of(torch: Any) -> Callable[[Any], Any]:
        g, b = torch.from_numpy(weights["g"]), torch.from_numpy(weights["b"])
        return lambda x: torch.nn.functional.group_norm(x, 32, g, b, 1e-5)

    return _case(name, image, node, weights, of, None, result=image, opset=21)


def batch_norm(name: str, shape: tuple[int, ...]) -> Case:
    """Batch norm of an image whose channels are the rows, by known means and variances."""
    from onnx import helper

    image = _image(shape)
    weights = {n: random(image[1], seed=k) for k, n in enumerate("gbm", start=1)}
    weights["v"] = random(image[1], seed=4) ** 2 + 0.5
    node = helper.make_node("BatchNormalization", ["x", *weights], ["y"], epsilon=1e-5)

    def of(torch: Any) -> Callable[[Any], Any]:
        g, b, m, v = (torch.from_numpy(w) for w in weights.values())
        return lambda x: torch.nn.functional.batch_norm(x, m, v, g, b, False, 0.0, 1e-5)

    return _case(name, image, node, weights, of, None)


def _image(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Each row as a channel of two dimensions."""
    channels, pixels = shape
    height = 1 << ((pixels & -pixels).bit_length() - 1) // 2
    return 1, channels, height, pixels // height


def gelu(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    return _case(name, shape, helper.make_node("Gelu", ["x"], ["y"]), {}, lambda t: t.nn.functional.gelu, None)


def tanh(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    return _case(name, shape, helper.make_node("Tanh", ["x"], ["y"]), {}, lambda t: t.tanh, np.tanh)


def transpose(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    return _case(
        name,
        shape,
        helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]),
        {},
        lambda t: lambda x: x.t().contiguous(),
        lambda x: np.ascontiguousarray(x.T),
    )


def argmax(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    node = helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)
    return _case(name, shape, node, {}, lambda t: lambda x: x.argmax(1), lambda x: x.argmax(1), 1.0, np.int64)


def cumulative_sum(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    weights = {"axis": np.array(1, np.int64)}
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    return _case(name, shape, node, weights, lambda t: lambda x: x.cumsum(1), lambda x: x.cumsum(1))


def take_rows(name: str, shape: tuple[int, ...]) -> Case:
    """Rows at unordered places, as in an embedding."""
    from onnx import helper

    places = np.random.default_rng(1).integers(0, shape[0], shape[0])
    node = helper.make_node("Gather", ["x", "places"], ["y"], axis=0)

    def of(torch: Any) -> Callable[[Any], Any]:
        at = torch.from_numpy(places)
        return lambda x: x.index_select(0, at)

    return _case(name, shape, node, {"places": places}, of, lambda x: x.take(places, 0))


def largest(name: str, shape: tuple[int, ...]) -> Case:
    """The ten largest of each row."""
    from onnx import helper

    node = helper.make_node("TopK", ["x", "k"], ["y", "places"], axis=1)
    return _case(name, shape, node, {"k": np.array([10], np.int64)}, lambda t: lambda x: x.topk(10, 1)[0], None, 1.0)


def sine(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    return _case(name, shape, helper.make_node("Sin", ["x"], ["y"]), {}, lambda t: t.sin, np.sin)


def logarithm(name: str, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    return _case(name, shape, helper.make_node("Log", ["x"], ["y"]), {}, lambda t: t.log, np.log, drawn=positive)


def positive(*shape: int) -> np.ndarray:
    """Positive numbers, which have a logarithm: results of peers for negative ones cannot be compared."""
    return np.exp(random(*shape))


def sum_rows(name: str, shape: tuple[int, ...]) -> Case:
    return _sum(name, shape, 1)


def sum_columns(name: str, shape: tuple[int, ...]) -> Case:
    return _sum(name, shape, 0)


def _sum(name: str, shape: tuple[int, ...], axis: int) -> Case:
    from onnx import helper

    weights = {"axes": np.array([axis], np.int64)}
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    return _case(name, shape, node, weights, lambda t: lambda x: x.sum(axis), lambda x: x.sum(axis), 1.0)


KINDS: dict[str, Callable[[str, tuple[int, ...]], Case]] = {
    "softmax": softmax,
    "layer norm": layer_norm,
    "rms norm": rms_norm,
    "group norm": group_norm,
    "batch norm": batch_norm,
    "gelu": gelu,
    "tanh": tanh,
    "transpose": transpose,
    "sum of rows": sum_rows,
    "sum of columns": sum_columns,
    "argmax": argmax,
    "cumulative sum": cumulative_sum,
    "take rows": take_rows,
    "top ten": largest,
    "sin": sine,
    "log": logarithm,
}
