"""The View of a movement node or gather: which elements of its operand it reads (spec 1 "View").

Operations that join, pad with a number or compute have none.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core import view as v
from tatami.core.algebra.order import is_nonneg
from tatami.core.algebra.simplify import linearize
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import ONE, expr
from tatami.core.view import View, contiguous
from tatami.frontend.ir import Graph, Node, TensorType

LINEAR = frozenset({"permute", "unsqueeze", "squeeze", "repeat", "flip", "reshape", "flatten", "expand", "slice", "unfold"})
"""Movement operations whose view is Linear over their operand."""
INDEXED = frozenset({"tile", "gather", "take", "gather_nd", "view", "roll"})
"""Operations that read their operand by index expressions."""


def node_view(node: Node, tensors: Mapping[str, TensorType]) -> View | None:
    """The node's view of its first operand; None for operations that are not plain steps of spec 1 "View operations"."""
    shape = tensors[node.inputs[0]].shape if node.inputs and node.inputs[0] else ()
    result = tensors[node.outputs[0]].shape
    base, a = contiguous(shape), node.attrs
    rank = len(shape)
    match node.op:
        case "permute":
            return v.permute(base, tuple(p % rank for p in a["perm"]))
        case "unsqueeze":
            for axis in sorted(k % len(result) for k in a["axes"]):
                base = v.unsqueeze(base, axis)
            return base
        case "squeeze":
            for axis in sorted((k % rank for k in a["axes"]), reverse=True):
                base = v.squeeze(base, axis)
            return base
        case "flip":
            for axis in a["axes"]:
                base = v.flip(base, axis)
            return base
        case "tile":
            for axis, times in enumerate(a["repeats"]):
                base = base if expr(times) == ONE else v.tile(base, axis, times)
            return base
        case "reshape" | "flatten":
            return v.reshape(base, result)
        case "repeat":
            return v.repeat(base, a["axis"], a["times"])
        case "unfold":
            return v.unfold(base, a["kernel"], a.get("stride", ()), a.get("dilation", ()), a.get("groups", 1))
        case "view" if a.get("linear") is not None:
            return v.view_expr(result, a["linear"])
        case "view":
            return v.view_expr(result, linearize(tuple(map(expr, a["map"])), shape))
        case "slice":
            for axis, (lo, hi) in enumerate(zip(a["starts"], a["stops"], strict=True)):
                base = v.slice(base, axis, lo, hi, (a.get("steps") or [1] * rank)[axis])
            return base
        case "roll":
            for shift, axis in zip(a["shifts"], a["axes"], strict=True):
                base = v.roll(base, axis, shift)
            return base
        case "pad" if a.get("mode", "constant") != "constant" or all(is_nonneg(-expr(w)) for pad in a["pads"] for w in pad):
            for axis, (lo, hi) in enumerate(a["pads"]):
                base = v.pad(base, axis, lo, hi, a.get("mode", "constant"))
            return base
        case "diagonal":
            return v.diagonal(base)
        case "gather":
            return v.gather(base, a.get("axis", 0), tensors[node.inputs[1]].shape)
        case _:
            return None


def loads_text(node: Node, graph: Graph) -> str:
    """`` reads 6*i0 + l0, l0 = LoadIndex(1, …)`` for a gather, else ""."""
    if node.op != "gather" or any(i not in graph.tensors for i in (*node.inputs, *node.outputs)):
        return ""
    try:
        view = node_view(node, graph.tensors)
    except TatamiError:  # the verifier reports the fault of the node
        return ""
    return "" if view is None else f" reads {str(view).split(' at ', 1)[1]}"
