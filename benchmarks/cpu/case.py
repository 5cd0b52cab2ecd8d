"""One case: an ONNX model for the compilers, one PyTorch module, and for operators a numpy function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One row of the table.

    onnx(path) writes the model; inputs() are its named arrays; torch() is the same model for PyTorch, taking the inputs by
    position, where it has the operators. flops: useful operations of a call, 0 where bytes are what counts. peers: further models, by contestant, for
    a peer that has one operator for the whole. images: channels-last is worth trying.
    """

    name: str
    group: str
    onnx: Callable[[str], None]
    inputs: Callable[[], Arrays]
    torch: Callable[[], Any] | None
    numpy: Callable[[Mapping[str, np.ndarray]], np.ndarray] | None = None
    flops: float = 0.0
    bytes: float = 0.0
    images: bool = False
    quick: bool = False
    peers: Mapping[str, Callable[[str], None]] = field(default_factory=dict)


def save_model(
    path: str,
    nodes: list[Any],
    inputs: Arrays,
    weights: Arrays,
    output: str = "y",
    kind: Any = np.float32,
    result: tuple[int, ...] | None = None,
    opset: int = 20,
) -> None:
    """An ONNX file of `nodes` with fixed shapes and one output of a `kind`; the shape of its `result` where ONNX does not infer it."""
    import onnx
    from onnx import helper, numpy_helper

    kind_of = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info(n, kind_of(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(output, kind_of(np.dtype(kind)), result)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    domains = {n.domain for n in nodes}
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in sorted(domains) if d]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)
