"""The frontend graph: typed operations with a signature (spec 3 §2, spec 1), the meaning of a model.

    Graph = signature, tensors {name: dtype, shape}, nodes in topological order
    Node  = op, inputs, outputs, attrs

Operations are pure. `attrs` has the fields of the operation's attribute struct in `frontend/ops.py`, the table of
operations. Tensor names are the user's and stay in documents; from tiny on values have ids of our own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Shape
from tatami.core.signature import Signature


class TensorType(msgspec.Struct, frozen=True):
    """The type of a tensor: the dtype of its elements and the size of each axis."""

    dtype: DType
    shape: Shape


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation. An empty input name is an absent optional operand. `name` is unique in its graph.

    `attrs` holds JSON values: lists, never tuples.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if any(isinstance(v, tuple) for v in self.attrs.values()):
            msgspec.structs.force_setattr(self, "attrs", {k: _listed(v) for k, v in self.attrs.items()})


def _listed(value: object) -> object:
    return [_listed(v) for v in value] if isinstance(value, tuple | list) else value


class Graph(msgspec.Struct, frozen=True):
    """One graph: `main` of a module, a subgraph, a branch or a loop body.

    Every tensor that a node reads is an input of the signature or an output of an earlier node.
    """

    signature: Signature
    tensors: dict[str, TensorType]
    graph: tuple[Node, ...]
