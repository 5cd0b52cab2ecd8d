"""Expressions as tensors, numbers or sizes. Nodes of the graph are made here, through its API.

A long chain of operators, methods or indices is walked in a loop; only brackets recurse, and the parser bounds those."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.frontend.graph_api.tensor import Index, Tensor
from tatami.frontend.ir import TensorType
from tatami.harp import ir
from tatami.harp.elaboration.calls import Calls
from tatami.harp.elaboration.constants import Constants
from tatami.harp.elaboration.fused import fused
from tatami.harp.elaboration.scope import Scope
from tatami.harp.elaboration.values import Results, Unfit, Value, as_size, describe, join_numbers, join_sizes
from tatami.harp.source import Span

_OPERATIONS: dict[str, str] = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "@": "matmul", "**": "pow",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "<<": "shl", ">>": "shr",
}  # fmt: skip
_LOGICAL = {"&": ("and", "bitand"), "|": ("or", "bitor"), "^": ("xor", "bitxor")}


class Expressions:
    """The evaluation of expressions in a scope."""

    def __init__(self, scope: Scope, constants: Constants) -> None:
        self.scope = scope
        self.calls = Calls(scope, constants, self.value)

    def value(self, e: ir.Expression) -> Value:
        """The value of an expression. Raises TatamiError, or Skipped for a value that an earlier fault left unknown."""
        chain: list[ir.Binary | ir.Method | ir.Index] = []
        while isinstance(e, ir.Binary | ir.Method | ir.Index):
            chain.append(e)
            e = e.left if isinstance(e, ir.Binary) else e.receiver if isinstance(e, ir.Method) else e.base
        value = self._simple(e)
        for node in reversed(chain):
            match node:
                case ir.Binary():
                    value = self._binary(node, value, self.value(node.right))
                case ir.Method():
                    value = self.calls.method(node, value)
                case ir.Index():
                    value = self._index(node, value)
        return value

    def _simple(self, e: ir.Expression) -> Value:
        match e:
            case ir.Name():
                return self.scope.look_up(e)
            case ir.Integer(value) | ir.String(value) | ir.Truth(value):
                return value
            case ir.Real(text):
                return self._real(text, e.at)
            case ir.Group(inner):
                return self.value(inner)
            case ir.Array(items) | ir.Tuple(items):
                return [self.value(item) for item in items]
            case ir.Unary():
                return self._unary(e)
            case ir.Call():
                return self.calls.call(e)
            case ir.Fused():
                return fused(self.calls, e)
        raise AssertionError(e)

    def _real(self, text: str, at: Span) -> float:
        value = float(text)
        if math.isinf(value):
            raise self.scope.refuse("ParseError", at, f"{text[:40]} is larger than every f64", "write inf for infinity")
        return value

    # -- operators -----------------------------------------------------------------------------------
    def _unary(self, e: ir.Unary) -> Value:
        signs: list[ir.Unary] = []
        inner: ir.Expression = e
        while isinstance(inner, ir.Unary):
            signs.append(inner)
            inner = inner.operand
        value = self.value(inner)
        for sign in reversed(signs):
            value = self._signed(sign, value)
        return value

    def _signed(self, e: ir.Unary, value: Value) -> Value:
        if isinstance(value, Tensor):
            with self.scope.at(e.at):
                return -value if e.op == "-" else ~value
        if e.op == "-" and isinstance(value, int | float | Expr):
            return -value if not isinstance(value, bool) else -int(value)
        if e.op == "!" and isinstance(value, bool):
            return not value
        raise self._unfit(e.at, f"{e.op} of {describe(value)}", "give a tensor or a number")

    def _binary(self, e: ir.Binary, left: Value, right: Value) -> Value:
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return self._tensors(e, left, right)
        try:
            if isinstance(left, Expr) or isinstance(right, Expr):
                a, b = as_size(left), as_size(right)
                if a is not None and b is not None:
                    return join_sizes(e.op, a, b)
                other = right if isinstance(left, Expr) else left
                raise Unfit(
                    f"{e.op} of a size and {describe(other)}", "take the value of the size as a tensor: size(N).cast(f32)"
                )
            if isinstance(left, bool | int | float) and isinstance(right, bool | int | float):
                return join_numbers(e.op, left, right)
        except Unfit as error:
            raise self._unfit(e.at, str(error), error.suggestion) from None
        bad, operand = (left, e.left) if not isinstance(left, bool | int | float | Expr) else (right, e.right)
        raise self._unfit(operand.at, f"{e.op} of {describe(bad)}", _instead(bad))

    def _tensors(self, e: ir.Binary, left: Value, right: Value) -> Tensor:
        for value, operand in ((left, e.left), (right, e.right)):
            if not isinstance(value, Tensor | bool | int | float):
                raise self._unfit(operand.at, f"{e.op} of a tensor and {describe(value)}", _instead(value))
        with self.scope.at(e.at):
            if e.op == "**" and isinstance(right, int) and not isinstance(right, bool) and isinstance(left, Tensor):
                return left.one("powi", n=right)
            name = _OPERATIONS.get(e.op) or self._logical(e.op, left, right)
            return self.scope.graph.one(name, left, right)  # type: ignore[arg-type]

    def _logical(self, op: str, left: Value, right: Value) -> str:
        tensor = left if isinstance(left, Tensor) else right
        assert isinstance(tensor, Tensor)
        logical, bitwise = _LOGICAL[op]
        return logical if tensor.dtype == DType.bool else bitwise

    def _unfit(self, at: Span, why: str, suggestion: str) -> Exception:
        return self.scope.refuse("InvalidAttribute", at, why, suggestion)

    # -- indices -------------------------------------------------------------------------------------
    def _index(self, e: ir.Index, base: Value) -> Value:
        if isinstance(base, DType):
            return TensorType(base, tuple(self._extent(item) for item in e.items))
        if isinstance(base, Results):
            names = ", ".join("abcdefgh"[: len(base.tensors)])
            raise self._unfit(e.at, f"{describe(base)} are not one tensor", f"take them apart first: ({names}) = …")
        if not isinstance(base, Tensor):
            raise self._unfit(e.at, f"{describe(base)} has no elements to take", "index a tensor")
        keys = tuple(self._key(item) for item in e.items)
        if sum(k is Ellipsis for k in keys) > 1:
            raise self._unfit(e.at, "two '...' in one index", "keep one of them")
        with self.scope.at(e.at):
            return base[keys] if keys else base

    def _extent(self, item: ir.Item) -> Expr:
        """The value of a size in a type, such as ``f32[2, N]``."""
        value = None if isinstance(item, ir.Slice | ir.Rest) else self.value(item)
        size = as_size(value)
        if size is None:
            raise self._unfit(item.at, f"a size of a type is not {describe(value)}", "write an integer or a size variable")
        return size

    def _key(self, item: ir.Item) -> Index:
        match item:
            case ir.Rest():
                return Ellipsis
            case ir.Slice(start, stop, step):
                lo, hi = (None if s is None else self._place(s) for s in (start, stop))
                by = None if step is None else self.value(step)
                if by is not None and (not isinstance(by, int) or isinstance(by, bool) or by == 0):
                    assert step is not None
                    raise self._unfit(step.at, f"a step is an integer other than 0, not {describe(by)}", "give a number")
                return slice(lo, hi, by)
            case ir.Name() if item.name in ("None", "none"):
                return None
            case _:
                value = self.value(item)
                return value if isinstance(value, Tensor) else self._place(item)

    def _place(self, e: ir.Expression) -> int | Expr:
        value = self.value(e)
        if isinstance(value, Tensor):
            raise self._unfit(e.at, "a bound is a number or a size, not a tensor", "use x.take(index, axis)")
        if isinstance(value, bool) or not isinstance(value, int | Expr):
            raise self._unfit(e.at, f"an index is a number or a size, not {describe(value)}", "give an integer")
        return value


def _instead(value: Value) -> str:
    match value:
        case Expr():
            return f"take the value of the size as a tensor: size({value}).cast(f32)"
        case Results(tensors, of):
            names = ", ".join("abcdefgh"[k % 8] for k in range(len(tensors)))
            return f"take them apart first: ({names}) = {of}(…)"
        case _:
            return "give a tensor or a number"
