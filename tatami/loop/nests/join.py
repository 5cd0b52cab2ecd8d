"""Joining one term to the total of a reduce."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.numbers.combining import accumulator_dtype, combine
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.emitter import Emitter, neutral_value
from tatami.loop.ir import Assign, Cast, Const, Fma, Horizontal, Op, Reg, type_of
from tatami.region.ir import Binary, Reduce


def start_value(reduce: Reduce) -> Const:
    """The total before the first term: the reduce's own `init`, or the neutral value."""
    dtype = accumulator_dtype(reduce.dtype)
    return Const(reduce.init, dtype) if reduce.init is not None else neutral_value(reduce.fn, dtype)


def join_term(e: Emitter, total: Reg, reduce: Reduce, p: Point, across: bool = False) -> None:
    """Emit ``total = total fn body`` at a point; a sum of products is a fused multiply-add where possible. `across`: a vector
    wider than the total is reduced across its lanes first."""
    body = reduce.body
    narrows = across and p.lanes > total.lanes  # a narrow vector joins the scalar total of the tail
    if not narrows and reduce.fn == "sum" and total.dtype == DType.fp32 and isinstance(body, Binary) and body.fn == "mul":
        x, y = (e.widen(e.value(v, p), total.lanes) for v in (body.x, body.y))
        if type_of(x).dtype == type_of(y).dtype == DType.fp32:
            e.emit(Assign(total, Fma(x, y, total)))
            return
    value = e.value(reduce.body, p)
    if type_of(value).dtype != total.dtype:
        value = Cast(value, total.dtype)
    if narrows:
        whole = e.widen(value, p.lanes)
        value = Horizontal(horizontal_fn(reduce.fn, total.dtype), whole)
    e.emit(Assign(total, Op(combine(reduce.fn, total.dtype), (total, e.widen(value, total.lanes)))))


def horizontal_fn(fn: str, dtype: DType) -> str:
    """The function that combines the lanes of a total: for bool, `or` and `and`."""
    if dtype == DType.bool:
        return {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(fn, fn)
    return fn
