"""Determinants by unrolled elimination."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import product
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value

MAX_ORDER = 32
"""Maximum rows of a matrix whose elimination is unrolled."""


def _det(m: Importer, n: OnnxNode) -> list[Value]:
    """Det: Gaussian elimination with the largest pivot of each column, over all matrices at once."""
    x = Num(m, m.operand(n, 0))
    order = x.shape[-1].as_int()
    if order is None or order > MAX_ORDER:
        raise unsupported(m, f"the determinant of matrices of order {x.shape[-1]}", f"use an order up to {MAX_ORDER}")
    batch = x.shape[:-2]
    a = x.cast(DType.fp64 if x.dtype == DType.fp64 else DType.fp32).reshape(product(batch), order, order)
    result: Num | None = None
    for size in range(order, 0, -1):
        column = a.at(2, 0)
        place = column.fn("abs").fn("argmax", axis=1)
        index = place.unsqueeze(1)
        row = Num(m, m.one("gather_nd", [a.tensor, index.tensor], {"batch": 1}))
        pivot = row.at(1, 0)
        signed = place.fn("ne", 0).where(pivot * -1.0, pivot)
        result = signed if result is None else result * signed
        if size == 1:
            break
        here = Num(m, m.one("iota", [], {"shape": (size,), "axis": 0})).fn("eq", index)
        a = here.unsqueeze(2).where(a.part(1, 0, 1), a)  # the first row takes the pivot row's position
        safe = pivot.fn("eq", 0.0).where(Num(m, m.number(1.0, pivot.dtype)), pivot)
        factor = (a.at(2, 0) / safe.unsqueeze(1)).part(1, 1, size)
        a = a.part(1, 1, size).part(2, 1, size) - factor.unsqueeze(2) * row.part(1, 1, size).unsqueeze(1)
    if result is None:
        return [m.result(m.one("full", [], {"shape": batch, "value": 1.0, "dtype": x.dtype}))]
    return [m.result(result.cast(x.dtype).reshape(*batch).tensor)]


LINEAR_ALGEBRA: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"Det": _det}
"""Handlers of this file by operator."""
