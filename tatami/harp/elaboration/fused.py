"""Fused forms: one elementwise expression of named inputs, perhaps reduced or combined along an axis."""

from __future__ import annotations

from tatami.harp import ir
from tatami.harp.elaboration.calls import Calls
from tatami.harp.elaboration.parameters import tensor_method
from tatami.harp.elaboration.scope import near
from tatami.harp.elaboration.values import Value, describe

_REDUCE = {"sum": "sum", "prod": "prod", "max": "max", "min": "min"}
_CUMULATIVE = {"sum": "cumsum", "prod": "cumprod", "max": "cummax", "min": "cummin"}


def fused(calls: Calls, e: ir.Fused) -> Value:
    """The value of ``kind(inputs, axis=, op=) { body }``: the body, then its reduction or running combination."""
    scope = calls.scope
    if scope.only is not None:
        raise scope.refuse("InvalidAttribute", e.at, "a fused form inside another", "assign it before, and name it as an input")
    inputs = [a for a in e.arguments if a.name is None]
    for a in inputs:
        if not isinstance(a.value, ir.Name):
            raise scope.refuse(
                "InvalidAttribute", a.at, f"the inputs of {e.kind} are names", "assign the expression to a name before"
            )
        value = calls.value(a.value)
        if not isinstance(value, bool | int | float):
            calls.as_tensor(value, a.at)
    axis, op = _keywords(calls, e)
    scope.only = frozenset(a.value.name for a in inputs if isinstance(a.value, ir.Name))
    try:
        with scope.only_elementwise(e.body.at):
            body = calls.as_tensor(calls.value(e.body), e.body.at)
    finally:
        scope.only = None
    if e.kind == "fused":
        return body
    method = tensor_method((_REDUCE if e.kind == "fused_reduce" else _CUMULATIVE)[op])
    assert method is not None
    with scope.at(e.at):
        return calls.result(e.kind, method.function(body, axis))


def _keywords(calls: Calls, e: ir.Fused) -> tuple[int, str]:
    axis, op = 0, "sum"
    for a in e.arguments:
        if a.name is None:
            continue
        if e.kind == "fused" or a.name.name not in ("axis", "dim", "op"):
            known = [] if e.kind == "fused" else ["axis", "op"]
            how = near(a.name.name, known) or ("its keywords are axis and op" if known else "leave it out")
            raise calls.scope.refuse("InvalidAttribute", a.name.at, f"{e.kind} has no keyword {a.name.name!r}", how)
        if a.name.name == "op":
            op = _op(calls, e, a.value)
            continue
        value = calls.value(a.value)
        if not isinstance(value, int) or isinstance(value, bool):
            why = f"axis of {e.kind} is an integer, not {describe(value)}"
            raise calls.scope.refuse("InvalidAttribute", a.value.at, why, "write axis=0")
        axis = value
    return axis, op


def _op(calls: Calls, e: ir.Fused, value: ir.Expression) -> str:
    word = value.name if isinstance(value, ir.Name) else value.value if isinstance(value, ir.String) else ""
    if word not in _REDUCE:
        how = near(word, list(_REDUCE), "did you mean op={}?".format) or f"write op={', '.join(_REDUCE)}"
        raise calls.scope.refuse("InvalidAttribute", value.at, f"{e.kind} has no op {word[:80]!r}", how)
    return word
