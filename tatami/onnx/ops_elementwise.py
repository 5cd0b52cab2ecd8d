"""Elementwise ONNX operators, with ONNX's broadcasting made explicit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Expr, floordiv
from tatami.onnx.importer import Importer, OnnxNode, element_dtype
from tatami.onnx.values import Value

_SAME_NAME = {
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Reciprocal": "recip", "Sqrt": "sqrt", "Exp": "exp", "Log": "log",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
    "Sigmoid": "sigmoid", "Relu": "relu", "Floor": "floor", "Ceil": "ceil", "Round": "round", "IsNaN": "isnan",
    "Not": "not", "BitwiseNot": "bitnot", "Softplus": "softplus",
    "Add": "add", "Sub": "sub", "Mul": "mul", "Pow": "pow", "Equal": "eq", "Less": "lt", "LessOrEqual": "le",
    "Greater": "gt", "GreaterOrEqual": "ge", "And": "and", "Or": "or", "Xor": "xor", "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor", "BitwiseXor": "bitxor",
}  # fmt: skip

_SIZE_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
}


def _plain(m: Importer, n: OnnxNode) -> list[Value]:
    sizes = _on_sizes(m, n)
    if sizes is not None:
        return [sizes]
    tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
    if n.op == "Pow" and m.tensors[tensors[1]].dtype != m.tensors[tensors[0]].dtype:
        tensors[1] = m.cast(tensors[1], m.tensors[tensors[0]].dtype)
    return [m.result(m.emit(_SAME_NAME[n.op], tensors)[0])]


def _on_sizes(m: Importer, n: OnnxNode) -> Value | None:
    """Integer arithmetic on shapes stays symbolic."""
    values = [m.value(i) for i in n.inputs]
    if not any(v.sizes is not None for v in values):
        return None
    sizes = [m.sizes(v) for v in values]
    if any(s is None for s in sizes) or (n.op not in _SIZE_ARITHMETIC and n.op != "Div"):
        return None
    a, b = (s for s in sizes if s is not None)
    length = max(len(a), len(b))
    a, b = (s * length if len(s) == 1 else s for s in (a, b))
    if len(a) != len(b):
        return None
    if n.op == "Div":
        if any((d.as_int() or 0) <= 0 and d.as_int() is not None for d in b):
            return None
        out = tuple(floordiv(x, y) for x, y in zip(a, b, strict=True))
    else:
        out = tuple(_SIZE_ARITHMETIC[n.op](x, y) for x, y in zip(a, b, strict=True))
    rank = max(v.rank if v.array is None else v.array.ndim for v in values)
    return Value(sizes=out, rank=rank)


def _div(m: Importer, n: OnnxNode) -> list[Value]:
    sizes = _on_sizes(m, n)
    if sizes is not None:
        return [sizes]
    tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
    is_float = m.tensors[tensors[0]].dtype.is_float
    return [m.result(m.emit("div" if is_float else "idiv", tensors)[0])]


def _mod(m: Importer, n: OnnxNode) -> list[Value]:
    tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
    return [m.result(m.emit("rem" if n.attr("fmod", 0) else "mod", tensors)[0])]


def _variadic(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
        total = tensors[0]
        for t in tensors[1:]:
            total = m.emit(op, [total, t])[0]
        if n.op == "Mean":
            kind = m.tensors[total].dtype
            total = m.emit("div", [total, m.cast(m.add_constant(np.array(len(tensors), np.float32)), kind)])[0]
        return [m.result(total)]

    return handler


def _cast(m: Importer, n: OnnxNode) -> list[Value]:
    value = m.value(n.inputs[0])
    to = element_dtype(n.attr("to"), m.site)
    if value.sizes is not None and to in (DType.i64, DType.i32):
        return [value]
    return [m.result(m.cast(m.data(value), to))]


def _where(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.emit("where", m.broadcast([m.data(m.value(i)) for i in n.inputs]))[0])]


def _clip(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    dtype = m.tensors[x].dtype
    bounds: list[str] = []
    for position, name in ((1, "min"), (2, "max")):
        if name in n.attrs:
            bounds.append(m.cast(m.add_constant(np.array(n.attrs[name], np.float32)), dtype))
        elif len(n.inputs) > position and n.inputs[position]:
            bounds.append(m.data(m.value(n.inputs[position])))
        else:
            bounds.append("")
    if bounds[0]:
        x = m.emit("max", m.broadcast([x, bounds[0]]))[0]
    if bounds[1]:
        x = m.emit("min", m.broadcast([x, bounds[1]]))[0]
    return [m.result(x)]


ELEMENTWISE = {
    **dict.fromkeys(_SAME_NAME, _plain),
    "Div": _div,
    "Mod": _mod,
    "Max": _variadic("max"),
    "Min": _variadic("min"),
    "Sum": _variadic("add"),
    "Mean": _variadic("add"),
    "Cast": _cast,
    "Where": _where,
    "Clip": _clip,
}
