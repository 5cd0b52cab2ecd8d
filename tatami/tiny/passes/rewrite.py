"""The arguments and the answer of a rule of rewriting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Shape
from tatami.tiny import ir


class Rewrite(NamedTuple):
    """A node to build: its operands are ids or further nodes to build."""

    op: ir.Op
    src: tuple[str | Rewrite, ...]
    dtype: DType
    shape: Shape


Nodes: TypeAlias = Mapping[str, ir.Node]
Answer: TypeAlias = "str | Rewrite | None"
Rule: TypeAlias = Callable[[ir.Op, "tuple[str, ...]", DType, Shape, Nodes], Answer]


def uniform_constant(ident: str, nodes: Nodes) -> ir.Node | None:
    """The CONST whose number every element of `ident` is; None if there is none."""
    node = nodes[ident]
    while isinstance(node.op, ir.ExpandOp | ir.ReshapeOp | ir.PermuteOp | ir.ShrinkOp | ir.FlipOp):
        node = nodes[node.src[0]]
    return node if isinstance(node.op, ir.ConstOp) else None
