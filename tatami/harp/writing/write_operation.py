"""One node as an expression: an operator, a slice, a method of its first operand, or a call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import get_type_hints

import msgspec

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, Shape, expr
from tatami.core.scalar import Scalar
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.slices import slice_bounds
from tatami.frontend.ir import Node, TensorType
from tatami.frontend.operation import attributes
from tatami.frontend.operations.movement import Slice
from tatami.frontend.ops import OPS
from tatami.harp.elaboration.parameters import tensor_method
from tatami.harp.elaboration.values import dtype_name
from tatami.harp.writing import write
from tatami.harp.writing.write import Code, infix, number_text, size_text, string_text, type_text

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "matmul": "@",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&",
    "bitand": "&",
    "or": "|",
    "bitor": "|",
    "xor": "^",
    "bitxor": "^",
    "shl": "<<",
    "shr": ">>",
}
_PREFIX = {"neg": "-", "not": "!", "bitnot": "!"}
_REDUCE = {
    "reduce_sum": "sum",
    "reduce_prod": "prod",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_mean": "mean",
    "variance": "variance",
    "reduce_and": "all",
    "reduce_or": "any",
}
_POSITIONAL = frozenset({"reshape", "permute", "expand", "unsqueeze", "squeeze", "flip", "cast", "bitcast", "tile", "unfold"})
"""Operations whose first attribute is written without its name."""
_ALWAYS = frozenset({("argmax", "axis"), ("argmin", "axis")})
"""(operation, attribute) written even at the table's default: the method has another default."""


def expression(node: Node, operands: list[Code], types: list[TensorType | None], may_be_method: bool = True) -> Code:
    """The node's text. `operands` in order; an absent one is `none`. may_be_method=False: a call of the table's row."""
    if node.op in _INFIX and not node.attrs:
        return infix(_INFIX[node.op], *operands)
    if node.op in _PREFIX:
        return Code(f"{_PREFIX[node.op]}{operands[0].at(write.PREFIX)}", write.PREFIX)
    if node.op == "slice" and types[0] is not None:
        index = slice_text(attributes(OPS["slice"], node), types[0].shape)
        if index is not None:
            return Code(f"{operands[0].at(write.POSTFIX)}[{index}]")
    if node.op == "powi":
        return Code(f"{operands[0].at(write.POSTFIX)}**{node.attrs['n']}", write.POWER)
    if may_be_method and len(operands) == 1 and types[0] is not None:
        method = _method_call(node, operands[0], types[0])
        if method is not None:
            return method
    arguments = [*(o.text for o in operands), *(f"{k}={_text(node, k, v)}" for k, v in given_attributes(node).items())]
    return Code(f"{node.op}({', '.join(arguments)})")


def _method_call(node: Node, x: Code, type: TensorType) -> Code | None:
    """The node as a method of its operand; None if that would be another node."""
    name, named = node.op, given_attributes(node)
    if node.op in _REDUCE and "acc_dtype" not in named:
        name = _REDUCE[node.op]
        axes = named.pop("axes", None)
        if isinstance(axes, tuple):
            named = {"axis": axes[0] if len(axes) == 1 else axes, **named}
    first = [named.pop(next(iter(named)))] if node.op in _POSITIONAL and named else []
    if not method_gives(name, first, named, node, type):
        return None
    arguments = [*map(value_text, first), *(f"{k}={_text(node, k, v)}" for k, v in named.items())]
    return Code(f"{x.at(write.POSTFIX)}.{name}({', '.join(arguments)})")


def method_gives(name: str, first: list[object], named: Mapping[str, object], node: Node, x: TensorType) -> bool:
    """True if the method of the Graph API makes exactly this node; also if there is none, since the language then uses the
    table's row."""
    method = tensor_method(name)
    if method is None:
        return True
    scratch = Graph()
    try:
        method.function(scratch.input("x", x.shape, x.dtype), *first, **named)
    except (TatamiError, TypeError):
        return False
    made = scratch.nodes
    row = OPS[node.op]
    return len(made) == 1 and made[0].op == node.op and repr(attributes(row, made[0])) == repr(attributes(row, node))


def given_attributes(node: Node) -> dict[str, object]:
    """The attributes that differ from the operation's defaults."""
    struct = attributes(OPS[node.op], node)
    out: dict[str, object] = {}
    for field in msgspec.structs.fields(type(struct)):
        value = getattr(struct, field.name)
        if repr(value) != repr(field.default) or (node.op, field.name) in _ALWAYS:
            out[field.name] = value
    return out


def _text(node: Node, attribute: str, value: object) -> str:
    return value_text(value, is_number=_hints(node.op).get(attribute) == Scalar)


@lru_cache(maxsize=512)
def _hints(op: str) -> dict[str, object]:
    return get_type_hints(OPS[op].attrs)


def value_text(value: object, is_number: bool = False) -> str:
    """The text of an attribute. is_number: a string is a number that JSON has no form for (INF)."""
    match value:
        case DType():
            return dtype_name(value)
        case Expr():
            return size_text(value)
        case TensorType(dtype, shape):
            return type_text(dtype, shape)
        case str() if not is_number:
            return string_text(value)
        case bool() | int() | float() | str():
            return number_text(value)
        case tuple():
            return "[" + ", ".join(_element_text(v) for v in value) + "]"
        case _:
            raise AssertionError(f"no text for an attribute {value!r}")


def _element_text(value: object) -> str:
    return f"({', '.join(map(value_text, value))})" if isinstance(value, tuple) else value_text(value)


def slice_text(attrs: Slice, shape: Shape) -> str | None:
    """The slice as it stands between brackets; None if that would mean something else."""
    if len(attrs.steps) != len(shape):
        return None
    parts = []
    for size, start, stop, step in zip(shape, attrs.starts, attrs.stops, attrs.steps, strict=True):
        part = _part(size, start, stop, step)
        if part is None:
            return None
        parts.append(part)
    while parts and parts[-1] == ":":
        parts.pop()
    return ", ".join(parts) if parts else None  # a slice of everything: the API's index makes no node


def _part(size: Expr, start: Expr, stop: Expr, step: int) -> str | None:
    """A ``start:stop:step`` with these bounds; None if there is none."""
    for low in _bounds(start, ZERO, size):
        for high in _bounds(stop, size, size):
            if slice_bounds(slice(low, high, step), size) == (start, stop, step, False):
                texts = ["" if b is None else size_text(expr(b)) for b in (low, high)]
                return ":".join(texts) + ("" if step == 1 else f":{step}")
    return None


def _bounds(value: Expr, default: Expr, size: Expr) -> list[Expr | int | None]:
    """Ways to write a bound, best first: omitted, from the end if the size is a symbol, from the start."""
    if value == default:
        return [None, value]
    from_end = (value - size).as_int()
    if from_end is not None and from_end < 0 and size.as_int() is None:
        return [from_end, value]
    return [value]
