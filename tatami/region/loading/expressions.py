"""Expressions of a Region document (spec 3 §6.8): index expressions, predicates, values.

    "ho", 2, {"add": [{"mul": [2, "ho"]}, -1]}, "2*ho - 1"      an index expression: sizes and axes
    "S", {"read": …}, {"reduce": …}, {"exp": […]}, 0.5          a value: a let by name, an access, an op, a constant

A constant takes the dtype of its neighbour. A comparison of index expressions becomes a guard when two of them bound
one expression from both sides, else a comparison of Index values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tatami.core.algebra.expr_text import ExprSyntaxError
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, maximum, minimum, mod, product
from tatami.core.ops import OPS
from tatami.core.scalar import Scalar, scalar
from tatami.indexbook.ir import Guard
from tatami.region import ir

COMPARE = ("ge", "gt", "le", "lt")
"""Comparisons that may bound an index expression."""
INDEX_OPS = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
"""Operations of index expressions."""
UNTYPED = DType.unknown
"""Dtype of a constant until the dtype of its neighbour is known."""


def is_index(value: Any, lets: Mapping[str, Any]) -> bool:
    """True if `value` is an index expression. Names of lets are values, not indices."""
    if isinstance(value, bool | float):
        return False
    if isinstance(value, int):
        return True
    if isinstance(value, str):
        try:
            return not free_vars(expr(value)) & lets.keys()
        except ValueError:
            return False
    if isinstance(value, dict) and len(value) == 1:
        (op, args), *_ = value.items()
        return op in INDEX_OPS and isinstance(args, list) and all(is_index(a, lets) for a in args)
    return False


def index_of(value: Any, at: str) -> Expr:
    """Read an index expression. Raises TatamiError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return expr(value)
    if isinstance(value, str):
        try:
            return expr(value)
        except ExprSyntaxError as error:
            raise fail("IndexSyntax", at, str(error), "write sizes and axes with + - * // % min max") from None
    if isinstance(value, dict) and len(value) == 1:
        (op, args), *_ = value.items()
        if op in INDEX_OPS and isinstance(args, list) and len(args) >= 2:
            parts = [index_of(a, at) for a in args]
            try:
                return _apply(op, parts)
            except (ValueError, ZeroDivisionError) as error:
                raise fail("MissingDivGuard", at, str(error), "divide by a positive size") from None
    raise fail(
        "InvalidDocument", at, f"{str(value)[:60]} is not an index expression", f"use sizes, axes and {', '.join(INDEX_OPS)}"
    )


def _apply(op: str, parts: list[Expr]) -> Expr:
    match op:
        case "add":
            return sum(parts[1:], parts[0])
        case "sub":
            return parts[0] - sum(parts[2:], parts[1])
        case "mul":
            return product(parts)
        case "floordiv":
            return floordiv(parts[0], parts[1])
        case "mod":
            return mod(parts[0], parts[1])
        case "min":
            return minimum(*parts)
        case _:
            return maximum(*parts)


class ExprLoader:
    """Reader of the expressions of one let."""

    def __init__(self, at: str, lets: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        self.at = at
        self.lets = lets
        self.tensors = tensors

    def fail(self, kind: str, why: str, suggestion: str) -> TatamiError:
        """The error `kind` at this let."""
        return fail(kind, self.at, why, suggestion)

    def value(self, v: Any) -> ir.RegionExpr:
        """Read a value: a constant, a name, or an operation. Raises TatamiError."""
        if isinstance(v, bool):
            return ir.Const(v, DType.bool)
        if isinstance(v, int | float):
            return ir.Const(v, UNTYPED)
        if isinstance(v, str):
            return self.name(v)
        if not isinstance(v, dict) or len(v) != 1:
            raise self.fail("InvalidDocument", f"{str(v)[:60]} is not an expression", 'write {"op": […]} with one key')
        (op, args), *_ = v.items()
        match op:
            case "read":
                return self.read(args)
            case "at":
                return ir.At(self.field(args, "let"), self.map(args))
            case "ref":
                return ir.Ref(args if isinstance(args, str) else self.field(args, "let"))
            case "const":
                return self.constant(args)
            case "index":
                return ir.Index(index_of(self.field(args, "value", Any), self.at), self.dtype(args.get("dtype", "i64")))
            case "select":
                return self.select(args)
            case "cast":
                x, to = (
                    args if isinstance(args, list) and len(args) == 2 else (self.field(args, "x", Any), self.field(args, "to"))
                )
                return ir.Cast(self.value(x), self.dtype(to))
            case "reduce":
                return self.reduce(args)
            case "scan":
                axis, body = self.field(args, "axis"), self.value(self.field(args, "body", Any))
                flags = (bool(args.get("exclusive", False)), bool(args.get("reverse", False)))
                return ir.Scan(self.field(args, "op"), axis, self.dtype(args.get("dtype")), body, *flags)
            case "BroadcastInDim":
                shape = tuple(index_of(s, self.at) for s in self.field(args, "result_shape", list))
                dims = tuple(self.field(args, "broadcast_dimensions", list))
                return ir.BroadcastInDim(self.value(self.field(args, "operand", Any)), shape, dims)
            case "Transpose":
                return ir.Transpose(self.value(self.field(args, "operand", Any)), tuple(self.field(args, "permutation", list)))
            case _:
                return self.operation(op, args)

    def name(self, v: str) -> ir.RegionExpr:
        """Read a name: a special number, an earlier let, or a scalar tensor."""
        if v in ("INF", "-INF", "NAN"):
            return ir.Const(v, UNTYPED)
        if v in self.lets:
            return ir.Ref(v)
        if v in self.tensors and not self.tensors[v].memref.shape:
            return ir.Read(v, ())
        raise self.fail(
            "UnknownValue", f"{v!r} is not a let defined before", "name an earlier let, or read a tensor with its map"
        )

    def operation(self, op: str, args: Any) -> ir.RegionExpr:
        """Read an operation of `core.ops.OPS`, or a comparison of indices as a predicate."""
        if op in COMPARE and isinstance(args, list) and len(args) == 2 and all(is_index(a, self.lets) for a in args):
            return self.predicate([{op: args}])
        if op == "and" and isinstance(args, list):
            return self.predicate(args)
        name = {"idiv": "idiv", "FDIV": "div"}.get(op, op)
        if name not in OPS:
            raise self.fail(
                "UnknownOp", f"there is no operation {op!r}", f"the operations are {', '.join(OPS)}, reduce, select, read"
            )
        operands = args if isinstance(args, list) else [args]
        if OPS[name].arity != len(operands):
            raise self.fail(
                "InvalidDocument", f"{op} takes {OPS[name].arity} operands, not {len(operands)}", "give it its operands"
            )
        if name == "where":
            return ir.Select(*(self.value(a) for a in operands))
        parts = [self.value(a) for a in operands]
        return ir.Unary(name, parts[0]) if len(parts) == 1 else ir.Binary(name, parts[0], parts[1])

    def read(self, args: Any) -> ir.RegionExpr:
        """Read a read, with or without computed indices."""
        tensor = self.field(args, "tensor")
        if "indices" not in args:
            return ir.Read(tensor, self.map(args))
        entries = tuple(None if m is None else index_of(m, self.at) for m in self.field(args, "map", list))
        return ir.ReadAt(
            tensor, entries, tuple(self.value(i) for i in self.field(args, "indices", list)), args.get("bounds", "wrap")
        )

    def map(self, args: Any) -> tuple[Expr, ...]:
        """Read the index expressions of the field ``map``."""
        return tuple(index_of(m, self.at) for m in self.field(args, "map", list))

    def constant(self, args: Any) -> ir.Const:
        """Read a constant, with or without its dtype."""
        if isinstance(args, dict):
            return ir.Const(self.scalar(self.field(args, "value", Any)), self.dtype(args.get("dtype")))
        return ir.Const(self.scalar(args), UNTYPED)

    def scalar(self, value: Any) -> Scalar:
        """Read a number, also written as a string."""
        try:
            return scalar(value)
        except ValueError as error:
            raise self.fail("InvalidDocument", str(error), "write a number") from None

    def select(self, args: Any) -> ir.RegionExpr:
        """Read a select; a conjunction of guards and other conditions becomes two nested selects."""
        then, other = self.value(self.field(args, "then", Any)), self.value(self.field(args, "else", Any))
        pred = self.value(self.field(args, "pred", Any))
        if isinstance(pred, ir.Binary) and pred.fn == "and" and isinstance(pred.x, ir.Within):
            return ir.Select(pred.x, ir.Select(pred.y, then, other), other)
        return ir.Select(pred, then, other)

    def reduce(self, args: Any) -> ir.Reduce:
        """Read a reduce; without a dtype its dtype is unknown."""
        axes = tuple(self.field(args, "axes", list))
        dtype = DType.unknown if args.get("dtype") is None else self.dtype(args["dtype"])
        init = None if args.get("init") is None else self.scalar(args["init"])
        return ir.Reduce(self.field(args, "op"), axes, init, dtype, self.value(self.field(args, "body", Any)))

    def predicate(self, args: list[Any]) -> ir.RegionExpr:
        """Read a conjunction. Comparisons of indices that bound one expression from both sides become guards."""
        margins: list[tuple[Expr, Any]] = []  # (expression, its comparison), which holds if the expression is >= 0
        rest: list[Any] = []
        for a in args:
            op, pair = next(iter(a.items())) if isinstance(a, dict) and len(a) == 1 else ("", None)
            if op in COMPARE and isinstance(pair, list) and len(pair) == 2 and all(is_index(x, self.lets) for x in pair):
                x, y = (index_of(p, self.at) for p in pair)
                margins.append(({"ge": x - y, "gt": x - y - 1, "le": y - x, "lt": y - x - 1}[op], (op, x, y)))
            else:
                rest.append(a)
        guards: list[Guard] = []
        values: list[ir.RegionExpr] = []
        while margins:
            first, source = margins.pop(0)
            partner = next((i for i, (m, _) in enumerate(margins) if self.is_size(first + m)), None)
            if partner is None:
                op, x, y = source
                values.append(ir.Binary(op, ir.Index(x, DType.i64), ir.Index(y, DType.i64)))
                continue
            other, _ = margins.pop(partner)
            low = first if _leading(first) > 0 else other
            guards.append(Guard(low, first + other + 1))
        values += [self.value(a) for a in rest]
        parts: list[ir.RegionExpr] = ([ir.Within(tuple(guards))] if guards else []) + values
        out = parts[-1]
        for p in reversed(parts[:-1]):
            out = ir.Binary("and", p, out)
        return out

    def is_size(self, e: Expr) -> bool:
        """True if no axis stands in `e`: the axes of two margins cancel in their sum."""
        return not free_vars(e) & self.axes

    axes: frozenset[str] = frozenset()

    # -- fields --------------------------------------------------------------------------------

    def field(self, args: Any, name: str, kind: Any = str) -> Any:
        """Field `name` of a JSON object. Raises TatamiError if it is missing or no `kind`."""
        if not isinstance(args, dict) or name not in args:
            raise self.fail("InvalidDocument", f"the field {name!r} is missing", f"give {name!r}")
        value = args[name]
        if kind is not Any and not isinstance(value, kind):
            raise self.fail("InvalidDocument", f"{name!r} is {type(value).__name__}, not {kind.__name__}", f"repair {name!r}")
        return value

    def dtype(self, name: Any) -> DType:
        """Read the name of a dtype."""
        try:
            return DType(name)
        except ValueError:
            raise self.fail(
                "UnknownDType", f"{name!r} is not a dtype", f"use one of {', '.join(d.value for d in DType)}"
            ) from None


def _leading(e: Expr) -> int:
    """Sign of the first term; the axis part of ``index >= 0`` is positive."""
    return e.terms[0][1] if e.terms else 1
