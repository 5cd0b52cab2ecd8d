"""Where two systems part on a model: the nodes that give other results for the same operands.

Every node is run as a model of its own, on the operands that the other system computed; constants stay constants. A
model on which the systems differ though no node of it does has rounding that grew on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

Arrays = Mapping[str, np.ndarray]
Run = Callable[[onnx.ModelProto, Arrays], Mapping[str, np.ndarray]]
Difference = Callable[[Arrays, Arrays], str]


@dataclass(frozen=True)
class Parting:
    node: str
    operator: str
    difference: str


def partings(
    model: onnx.ModelProto, inputs: Arrays, one: Run, others: tuple[Run, ...], difference: Difference
) -> list[Parting]:
    """The nodes where `one` differs from the first of `others` that can run the node. Raises if none of them can."""
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
    constants = {init.name: numpy_helper.to_array(init) for init in model.graph.initializer}
    values = dict(inputs)
    out: list[Parting] = []
    for node in model.graph.node:
        alone = _alone(model, node, constants, values, types)
        given = {port.name: values[port.name] for port in alone.graph.input}
        expected = _first(others, alone, given)
        if all(name in constants for name in node.input if name):
            constants |= expected
            continue
        values |= expected
        try:
            found = difference(one(alone, given), expected)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"[:200]
        if found:
            out.append(Parting(node.name, node.op_type, found))
    return out


def _alone(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    constants: Arrays,
    values: Arrays,
    types: Mapping[str, onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """The node as a model."""
    names = list(dict.fromkeys(name for name in node.input if name))
    kind = onnx.helper.np_dtype_to_tensor_dtype
    ports = [onnx.helper.make_tensor_value_info(n, kind(values[n].dtype), values[n].shape) for n in names if n not in constants]
    tensors = [numpy_helper.from_array(constants[n], n) for n in names if n in constants]
    graph = onnx.helper.make_graph([node], "node", ports, [types[n] for n in node.output if n], tensors)
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _first(others: tuple[Run, ...], alone: onnx.ModelProto, given: Arrays) -> dict[str, np.ndarray]:
    for run in others[:-1]:
        try:
            return dict(run(alone, given))
        except Exception:  # the next one is asked
            continue
    return dict(others[-1](alone, given))
