"""One node of an operator: operands, attributes, and the result that its version gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray


@dataclass(frozen=True)
class Fixed:
    array: Array


@dataclass
class Case:
    operands: list[Any]
    """Arrays, Fixed ones, None for an absent one."""
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    want: list[Array] | None = None
    """None: what ONNX Runtime gives at this version, or at the first later one that it has a kernel of."""
    is_random: bool = False
    """Only shapes and dtypes are compared."""


def fixed(*values: Any, dtype: Any = np.int64) -> Fixed:
    return Fixed(np.array(values[0] if len(values) == 1 and not isinstance(values[0], int) else values, dtype))


def scalar(value: Any, dtype: Any = np.int64) -> Fixed:
    return Fixed(np.array(value, dtype))


RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(1.25)
UNIT = np.tanh(X).astype(np.float32)
Y = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)
INTS = RNG.integers(-5, 6, (2, 3, 4)).astype(np.int64)
TRUTH = X > 0


def consumed(op: str, version: int, count: int = 1) -> dict[str, Any]:
    """`consumed_inputs` where this version has it."""
    schema = onnx.defs.get_schema(op, version)
    return {"consumed_inputs": [0] * count} if "consumed_inputs" in schema.attributes else {}


def model_of(op: str, opset: int, case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    names, inputs, constants, feed = [], [], [], {}
    for i, operand in enumerate(case.operands):
        names.append(f"x{i}" if operand is not None else "")
        if isinstance(operand, Fixed):
            constants.append(numpy_helper.from_array(operand.array, f"x{i}"))
        elif operand is not None:
            feed[f"x{i}"] = operand
            inputs.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(operand.dtype), operand.shape))
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(op, names, outputs, **case.attrs)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feed
