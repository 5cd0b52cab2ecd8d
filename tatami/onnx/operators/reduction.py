"""Reductions, positions of maxima and minima, running sums."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import product
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice, integers, numbers
from tatami.onnx.values import Value

_REDUCE = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod", "ReduceL1": "reduce_l1", "ReduceL2": "reduce_l2", "ReduceSumSquare": "reduce_sum_square",
    "ReduceLogSum": "reduce_log_sum", "ReduceLogSumExp": "reduce_log_sum_exp",
}  # fmt: skip


def _reduce(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    value = m.value(n.inputs[0])
    axes = numbers(m, n, 1, "axes") or None
    if axes is None and n.attr("noop_with_empty_axes", 0):
        axes = []  # no axis is reduced; the operator's elementwise part remains
    if value.sizes is not None and n.op == "ReduceProd" and value.rank == 1 and axes != []:
        return [Value(sizes=(product(value.sizes),), rank=1 if n.attr("keepdims", 1) else 0)]
    attrs = {"axes": axes, "keepdims": bool(n.attr("keepdims", 1))}
    dtype = m.dtype(x)
    op = _REDUCE[n.op]
    if dtype == DType.bool and op in ("reduce_max", "reduce_min"):
        return [m.result(m.one("reduce_or" if op == "reduce_max" else "reduce_and", [x], attrs))]
    if not dtype.is_float and op in ("reduce_l2", "reduce_log_sum", "reduce_log_sum_exp"):
        return [m.result(m.cast(m.one(op, [m.cast(x, DType.fp64)], attrs), dtype))]
    return [m.result(m.one(op, [x], attrs))]


def _arg(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    attrs = {"axis": n.attr("axis", 0), "keepdims": bool(n.attr("keepdims", 1)), "last": bool(n.attr("select_last_index", 0))}
    return [m.result(m.emit("argmax" if n.op == "ArgMax" else "argmin", [x], attrs)[0])]


def _cumulative(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    axis = numbers(m, n, 1, "axis") or [0]
    attrs = {"axis": axis[0], "exclusive": bool(n.attr("exclusive", 0)), "reverse": bool(n.attr("reverse", 0))}
    return [m.result(m.emit("cumsum" if n.op == "CumSum" else "cumprod", [x], attrs)[0])]


def _topk(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    k = integers(m, n, 1, "k") or ()
    attrs = {"k": k[0], "axis": n.attr("axis", -1), "largest": bool(n.attr("largest", 1))}
    return [m.result(t) for t in m.emit("topk", [x], attrs)]


def _loss(m: Importer, n: OnnxNode) -> None:
    """Check `reduction` of a loss, whose function body would take any unknown word for the mean."""
    choice(m, n, "reduction", "mean", ("none", "sum", "mean"))


REDUCTION: dict[str, Callable[[Importer, OnnxNode], list[Value] | None]] = {
    "NegativeLogLikelihoodLoss": _loss,
    "SoftmaxCrossEntropyLoss": _loss,
    **dict.fromkeys(_REDUCE, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumSum": _cumulative,
    "CumProd": _cumulative,
    "TopK": _topk,
}
"""Handlers of this file by operator."""
