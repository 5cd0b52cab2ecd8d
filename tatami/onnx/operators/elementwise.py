"""Elementwise ONNX operators, with ONNX's broadcasting made explicit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.algebra.order import greatest, is_always_less, least
from tatami.core.dtype import DType
from tatami.core.expr import Expr, floordiv
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice, computable
from tatami.onnx.values import Value

_SAME_NAME = {
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Reciprocal": "recip", "Sqrt": "sqrt", "Exp": "exp", "Log": "log",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
    "Sigmoid": "sigmoid", "Relu": "relu", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Not": "not", "BitwiseNot": "bitnot",
    "Add": "add", "Sub": "sub", "Mul": "mul", "Equal": "eq", "Less": "lt", "LessOrEqual": "le",
    "Greater": "gt", "GreaterOrEqual": "ge", "And": "and", "Or": "or", "Xor": "xor", "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor", "BitwiseXor": "bitxor",
}  # fmt: skip

_SIZE_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Max": lambda a, b: greatest(a, b),
    "Min": lambda a, b: least(a, b),
}


def _equal(a: Expr, b: Expr) -> bool | None:
    return True if a == b else False if is_always_less(a, b) or is_always_less(b, a) else None


def _less(a: Expr, b: Expr) -> bool | None:
    return True if is_always_less(a, b) else False if is_always_less(b, a + 1) else None


_SIZE_ORDER: dict[str, Callable[[Expr, Expr], bool | None]] = {
    "Equal": _equal,
    "Less": _less,
    "Greater": lambda a, b: _less(b, a),
    "LessOrEqual": lambda a, b: _less(a, b + 1),
    "GreaterOrEqual": lambda a, b: _less(b, a + 1),
}
"""Comparison of two sizes: its result if it is the same for all values of the symbols, else None."""


def _plain(m: Importer, n: OnnxNode) -> list[Value]:
    sizes = _on_sizes(m, n)
    if sizes is not None:
        return [sizes]
    tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
    return [m.result(m.emit(_SAME_NAME[n.op], tensors)[0])]


def _on_sizes(m: Importer, n: OnnxNode) -> Value | None:
    """The result of integer arithmetic on sizes as size expressions; None for operands that are not sizes."""
    if len(n.inputs) != 2:
        return None
    values = [m.value(i) for i in n.inputs]
    if not any(v.sizes is not None for v in values):
        return None
    sizes = [m.sizes(v) for v in values]
    if any(s is None for s in sizes) or (n.op not in _SIZE_ARITHMETIC and n.op not in _SIZE_ORDER and n.op != "Div"):
        return None
    a, b = (s for s in sizes if s is not None)
    length = max(len(a), len(b))
    a, b = (s * length if len(s) == 1 else s for s in (a, b))
    if len(a) != len(b):
        return None
    rank = max(v.rank if v.array is None else v.array.ndim for v in values)
    if n.op in _SIZE_ORDER:
        truths = [_SIZE_ORDER[n.op](x, y) for x, y in zip(a, b, strict=True)]
        return None if None in truths else Value(array=np.array(truths if rank else truths[0], bool))
    if n.op == "Div":
        if any((d.as_int() or 0) <= 0 and d.as_int() is not None for d in b):
            return None
        out = tuple(floordiv(x, y) for x, y in zip(a, b, strict=True))
    else:
        out = tuple(_SIZE_ARITHMETIC[n.op](x, y) for x, y in zip(a, b, strict=True))
    return Value(sizes=out, rank=rank)


def _div(m: Importer, n: OnnxNode) -> list[Value]:
    sizes = _on_sizes(m, n)
    if sizes is not None:
        return [sizes]
    tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
    is_float = m.tensors[tensors[0]].dtype.is_float
    return [m.result(m.emit("div" if is_float else "idiv", tensors)[0])]


def _erf(m: Importer, n: OnnxNode) -> list[Value]:
    """Erf; for integers computed in fp64 and truncated."""
    (x,) = m.operands(n)
    dtype = m.dtype(x)
    return [m.result(m.cast(m.one("erf", [x if dtype.is_float else m.cast(x, DType.fp64)]), dtype))]


def _pow(m: Importer, n: OnnxNode) -> list[Value]:
    """Pow: the result has the base's dtype. An integer base with a float exponent is computed in floats; bases of 32 bits
    and more in fp64."""
    x, y = (m.data(m.value(i)) for i in n.inputs)
    base, exponent = m.dtype(x), m.dtype(y)
    known = m.known(m.value(n.inputs[1]))
    if base.is_float and known is not None and known.size == 1 and float(known.reshape(()).item()) in (2.0, 3.0):
        return [m.result(m.one("powi", m.broadcast([x, y])[:1], {"n": int(known.reshape(()).item())}))]
    if exponent.is_float and not base.is_float:
        wide = DType.fp64 if base.itemsize >= 4 else exponent
        return [m.result(m.cast(m.joined("pow", m.cast(x, wide), m.cast(y, wide)), base))]
    if base.is_float and exponent != base:  # the exponent is not narrowed: 1e-45 would become 0, 70000 infinity
        wide = exponent if exponent.is_float and exponent.itemsize > base.itemsize else base
        wide = DType.fp32 if wide.is_narrow_float else wide
        return [m.result(m.cast(m.joined("pow", m.cast(x, wide), m.cast(y, wide)), base))]
    return [m.result(m.joined("pow", x, m.cast(y, base)))]


def _shift(m: Importer, n: OnnxNode) -> list[Value]:
    direction = choice(m, n, "direction", None, ("LEFT", "RIGHT"))
    return [m.result(m.joined("shl" if direction == "LEFT" else "shr", *m.operands(n)))]


def _isinf(m: Importer, n: OnnxNode) -> list[Value]:
    x = computable(m, m.operand(n, 0))
    positive, negative = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    if positive and negative:
        return [m.result(m.one("isinf", [x]))]
    if not positive and not negative:
        return [m.result(m.one("full", [], {"shape": m.shape(x), "value": False, "dtype": DType.bool}))]
    return [m.result(m.one("eq", [x, m.number(np.inf if positive else -np.inf, m.dtype(x))]))]


def _isnan(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("isnan", [computable(m, m.operand(n, 0))]))]


def _mod(m: Importer, n: OnnxNode) -> list[Value]:
    tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
    return [m.result(m.emit("rem" if n.attr("fmod", 0) else "mod", tensors)[0])]


def _variadic(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        sizes = _on_sizes(m, n)
        if sizes is not None:
            return [sizes]
        tensors = m.broadcast([m.data(m.value(i)) for i in n.inputs])
        dtype = m.dtype(tensors[0])
        if n.op == "Mean" and dtype.is_narrow_float:  # the sum may exceed the range of 16 bits
            tensors = [m.cast(t, DType.fp32) for t in tensors]
        total = tensors[0]
        for t in tensors[1:]:
            total = m.emit(op, [total, t])[0]
        if n.op == "Mean":
            total = m.one("div", [total, m.number(len(tensors), m.dtype(total))])
        return [m.result(m.cast(total, dtype))]

    return handler


def _where(m: Importer, n: OnnxNode) -> list[Value]:
    condition, *branches = (m.value(i) for i in n.inputs)
    known, sizes = m.known(condition), [m.sizes(b) for b in branches]
    if known is not None and known.ndim <= 1 and any(b.sizes is not None for b in branches) and None not in sizes:
        truths = known.reshape(-1)
        length = max(len(truths), *(len(s or ()) for s in sizes))
        wide = [s * (length // len(s)) for s in sizes if s]
        if len(wide) == 2 and len(truths) in (1, length) and all(len(s) == length for s in wide):
            picked = tuple(wide[0 if truths[i % len(truths)] else 1][i] for i in range(length))
            rank = max(known.ndim, *(b.rank if b.array is None else b.array.ndim for b in branches))
            return [Value(sizes=picked, rank=rank)]
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
    "Erf": _erf,
    "Div": _div,
    "Pow": _pow,
    "BitShift": _shift,
    "IsInf": _isinf,
    "IsNaN": _isnan,
    "Mod": _mod,
    "Max": _variadic("max"),
    "Min": _variadic("min"),
    "Sum": _variadic("add"),
    "Mean": _variadic("add"),
    "Where": _where,
    "Clip": _clip,
}
"""Handlers of this file by operator."""
