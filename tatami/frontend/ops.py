"""The table of operations, `OPS[name]`, and the types of a node's results.

>>> len(OPS) > 100
True
>>> OPS["conv"].doc
'cross-correlation of (N, C, L..) or (C, L..) with (Cout, C/g, k..)'
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from tatami.core.diagnostic import fail
from tatami.frontend.ir import Node, TensorType
from tatami.frontend.operation import Operands, Operation, Site, attributes
from tatami.frontend.operations.collectives import COLLECTIVE
from tatami.frontend.operations.contraction import CONTRACTION
from tatami.frontend.operations.control import CONTROL
from tatami.frontend.operations.creation import CREATION
from tatami.frontend.operations.elementwise import ELEMENTWISE
from tatami.frontend.operations.indexing import INDEXING
from tatami.frontend.operations.kernel import KERNEL
from tatami.frontend.operations.kernel_body import KERNEL_BODY
from tatami.frontend.operations.movement import MOVEMENT
from tatami.frontend.operations.recurrent import RECURRENT
from tatami.frontend.operations.reduction import REDUCTION
from tatami.frontend.operations.trees import TREES

_MOVES = frozenset([
    "identity", "contiguous", "where", "cast", "bitcast", "reshape", "permute", "expand", "unsqueeze", "squeeze", "flatten",
    "flip", "repeat", "tile", "slice", "roll", "unfold", "concat", "stack", "split", "view", "depth_to_space",
    "space_to_depth", "diagonal", "gather", "take", "gather_nd", "reverse_sequence", "compress", "call", "if", "loop",
])  # fmt: skip
"""Operations that take small types (fp8, int4, …): they move elements and do not compute with them."""


def _without_small(op: Operation) -> Operation:
    """The operation, which refuses operands and results of small types. Raises E1007."""

    def infer(attrs: object, operands: Operands, site: Site) -> tuple[TensorType, ...]:
        results = op.infer(attrs, operands, site)
        for kind in (*(t for t in operands if t is not None), *results):
            if kind.dtype.is_small:
                raise fail(
                    "UnsupportedDType",
                    site.at,
                    f"{op.name} in {kind.dtype}, which is only stored and moved",
                    "cast to fp32 or i32 first, and the result back",
                )
        return results

    return msgspec.structs.replace(op, infer=infer)


OPS: dict[str, Operation] = {
    op.name: op if op.name in _MOVES or op.name == "dequantize" else _without_small(op)
    for family in (
        ELEMENTWISE,
        MOVEMENT,
        CONTRACTION,
        REDUCTION,
        CREATION,
        INDEXING,
        RECURRENT,
        TREES,
        KERNEL,
        KERNEL_BODY,
        COLLECTIVE,
        CONTROL,
    )
    for op in family
}
"""Name -> row of the table; the families in their order."""


def operation(node: Node) -> Operation:
    """The row of the table for a node. Raises E1601 for an unknown name."""
    if node.op not in OPS:
        raise fail("UnknownOp", node.name, f"{node.op[:80]!r} is not an operation", suggested_op(node.op))
    return OPS[node.op]


def suggested_op(name: str) -> str:
    """The suggestion for an operation that does not exist: the nearest name, or the page that lists all."""
    near = difflib.get_close_matches(name[:80], OPS, 1)
    return f"did you mean {near[0]!r}?" if near else "docs/operations.md lists them all"


def operands_of(node: Node, tensors: Mapping[str, TensorType]) -> list[TensorType | None]:
    """The operand types in order; None for an absent optional operand. Raises E1602, E1009."""
    check_operand_count(node)
    for name in node.inputs:
        if name and name not in tensors:
            raise fail("UnknownValue", node.name, f"operand {name!r} is not defined", "define it before this node")
    return [tensors[name] if name else None for name in node.inputs]


def check_operand_count(node: Node) -> None:
    """Raise E1009 for too few or too many operands."""
    op = operation(node)
    count = len(node.inputs)
    given = count - sum(not name for name in node.inputs)
    if count < op.least or (op.most >= 0 and count > op.most) or (op.name != "loop" and given < op.least):
        how = str(op.least) if op.least == op.most else f"{op.least} to {op.most if op.most >= 0 else 'any number'}"
        raise fail("InvalidAttribute", node.name, f"{op.name} has {given} operands", f"give {how}")


def infer(node: Node, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    """The types of the node's results. Raises TatamiError at the node."""
    op = operation(node)
    return op.infer(attributes(op, node, site.at), operands, site)
