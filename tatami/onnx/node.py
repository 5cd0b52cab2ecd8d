"""One ONNX node with its attributes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tatami.onnx.definitions import Stored


@dataclass(frozen=True)
class OnnxNode:
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def has(self, position: int) -> bool:
        """Whether the optional operand is given."""
        return len(self.inputs) > position and bool(self.inputs[position])

    def wants(self, position: int) -> bool:
        """Whether something may read this result."""
        return len(self.outputs) > position and bool(self.outputs[position])


def read_node(node: onnx.NodeProto, tensor: Callable[[Stored], np.ndarray]) -> OnnxNode:
    """`tensor` reads the tensors that the node holds."""
    attrs: dict[str, Any] = {}
    for a in node.attribute:
        if a.type == onnx.AttributeProto.TENSOR:
            attrs[a.name] = tensor(a.t)
        elif a.type == onnx.AttributeProto.SPARSE_TENSOR:
            attrs[a.name] = tensor(a.sparse_tensor)
        elif a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            attrs[a.name] = a.g
        elif a.type == onnx.AttributeProto.TYPE_PROTO:
            attrs[a.name] = a.tp
        else:
            value = onnx.helper.get_attribute_value(a)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            attrs[a.name] = value if isinstance(value, str | int | float) else list(value)
            if a.type == onnx.AttributeProto.STRINGS:
                attrs[a.name] = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in attrs[a.name]]
    return OnnxNode(node.op_type, node.domain, tuple(node.input), tuple(node.output), attrs)
