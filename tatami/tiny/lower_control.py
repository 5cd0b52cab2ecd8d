"""Calls of other programs: CALL and RESULT. The callee keeps its own symbols; `sizes` gives them in the caller's."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.scalar import Scalar
from tatami.frontend.ir import TensorType
from tatami.frontend.ops_control import Call, If, Loop, bind_sizes, call_inputs, callee
from tatami.tiny.build import Value
from tatami.tiny.ir import CallOp, ResultType
from tatami.tiny.lower_rule import Rule, Use


def _bound(use: Use, name: str, values: list[Value], sizes: dict[str, Expr]) -> dict[str, Expr]:
    """The callee's symbols in ours; equations that were not proved become assumptions."""
    graph = callee(name, use.site)
    types = [TensorType(v.dtype, v.shape) for v in values]
    bound, equations = bind_sizes(graph, call_inputs(graph, use.module.constants), types, sizes, use.site)
    for e in equations:
        use.builder.assume(e.lhs, e.rhs)
    return bound


def _results(use: Use) -> tuple[ResultType, ...]:
    return tuple(ResultType(t.dtype, t.shape) for t in use.types)


def call(use: Use[Call]) -> tuple[Value, ...]:
    sizes = _bound(use, use.attrs.graph, use.present, use.attrs.sizes)
    return use.builder.call(CallOp("program", (use.attrs.graph,), _results(use), sizes), use.present)


def if_(use: Use[If]) -> tuple[Value, ...]:
    """src = condition, operands; targets = then, otherwise. Both branches bind their symbols from the operands."""
    values = use.present[1:]
    sizes = _bound(use, use.attrs.then, values, {})
    other = _bound(use, use.attrs.otherwise, values, {})
    return use.builder.call(CallOp("if", (use.attrs.then, use.attrs.otherwise), _results(use), {**other, **sizes}), use.present)


def loop(use: Use[Loop]) -> tuple[Value, ...]:
    """src = trip count (i64), condition (bool), state.., invariants..; results = last state.., stacked scan outputs.."""
    b = use.builder
    trip, condition, *rest = use.operands
    values = [v for v in rest if v is not None]
    iteration = b.const(0, DType.i64)
    sizes = _bound(use, use.attrs.body, [iteration, *values], {})
    count = trip if trip is not None else b.const((1 << 63) - 1, DType.i64)
    go = condition if condition is not None else b.const(True, DType.bool)
    attrs: dict[str, Scalar | list[Scalar]] = {"carried": use.attrs.carried}
    return b.call(CallOp("loop", (use.attrs.body,), _results(use), sizes, attrs=attrs), [count, go, *values])


CONTROL: dict[str, Rule] = {"call": call, "if": if_, "loop": loop}
