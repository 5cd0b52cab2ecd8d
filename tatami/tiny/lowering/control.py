"""Calls of other programs as CALL and RESULT. The callee keeps its own symbols; `sizes` gives them in the caller's."""

from __future__ import annotations

from typing import Any

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.scalar import Scalar
from tatami.frontend.ir import TensorType
from tatami.frontend.operations.control import Call, If, Loop, bind_sizes, call_inputs, callee, turning_sizes
from tatami.tiny.build import Value
from tatami.tiny.ir import CallOp, ResultType
from tatami.tiny.lowering.rule import Rule, Use


def _arguments(
    use: Use[Any], names: tuple[str, ...], values: list[Value], sizes: dict[str, Expr]
) -> tuple[list[Value], dict[str, Expr]]:
    """(operands for every input of the callees, constants included; the callees' symbols in terms of the caller's).

    Callees of one call take the same arguments: first the operands, then the constants that any of them reads.
    """
    bound: dict[str, Expr] = {}
    for name in names:
        graph = callee(name, use.site)
        types = [TensorType(v.dtype, v.shape) for v in values]
        own, equations = bind_sizes(graph, call_inputs(graph, use.module.constants), types, sizes, use.site)
        bound = {**own, **bound}
        for e in equations:
            use.builder.assume(e.lhs, e.rhs)
    return [*values, *(use.constant(c) for c in use.hoisted(names))], bound


def _results(use: Use[Any]) -> tuple[ResultType, ...]:
    return tuple(ResultType(t.dtype, t.shape) for t in use.types)


def call(use: Use[Call]) -> tuple[Value, ...]:
    """A call of one program with the node's operands."""
    names = (use.attrs.graph,)
    arguments, sizes = _arguments(use, names, use.present, use.attrs.sizes)
    return use.builder.call(CallOp("program", names, _results(use), sizes, use.attrs.new), arguments)


def if_(use: Use[If]) -> tuple[Value, ...]:
    """CALL if. src = condition, operands; targets = then, otherwise. Both branches bind their symbols from the operands."""
    names = (use.attrs.then, use.attrs.otherwise)
    arguments, sizes = _arguments(use, names, use.present[1:], {})
    return use.builder.call(CallOp("if", names, _results(use), sizes, use.attrs.new), [use[0], *arguments])


def loop(use: Use[Loop]) -> tuple[Value, ...]:
    """CALL loop. src = trip count (i64), condition (bool), state.., invariants..; results = last state.., stacked scan
    outputs.."""
    b = use.builder
    trip, condition, *rest = use.operands
    count = trip if trip is not None else b.const((1 << 63) - 1, DType.i64)
    go = condition if condition is not None else b.const(True, DType.bool)
    values = [v for v in rest if v is not None]
    names = (use.attrs.body,)
    arguments, sizes = _arguments(use, names, [b.const(0, DType.i64), go, *values], {})
    attrs: dict[str, Scalar | list[Scalar]] = {"carried": use.attrs.carried}
    varying = turning_sizes(callee(use.attrs.body, use.site), use.attrs.carried, sizes, use.site)
    if varying:
        attrs["varying"] = sorted(varying)
        sizes = {s: e for s, e in sizes.items() if s not in varying}
    symbols = () if use.attrs.size is None or use.attrs.trip is not None else (use.attrs.size,)
    op = CallOp("loop", names, _results(use), sizes, (*symbols, *use.attrs.new), attrs)
    return b.call(op, [count, go, *arguments[2:]])


CONTROL: dict[str, Rule] = {"call": call, "if": if_, "loop": loop}
"""Rules of this family by operation."""
