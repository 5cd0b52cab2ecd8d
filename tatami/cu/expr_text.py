"""Index expressions and scalar expressions as CUDA text.

Indices are ``tt_i64``. fp16 and bf16 values are computed in float and rounded as in the Region: at a cast and
after an operation whose dtype is narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Extreme, Floor, Var
from tatami.core.faults.size_fault import literal
from tatami.core.numbers.numerics import constant
from tatami.core.ops import OPS
from tatami.core.scalar import Scalar, number, scalar
from tatami.indexbook.ir import Guard
from tatami.region.ir import Binary, Cast, Const, Index, Read, Ref, RegionExpr, Select, Unary, Within

Value: TypeAlias = tuple[str, DType]
"""(text of an operand, its dtype)."""
VALUE_TYPE = {
    DType.bool: "bool",
    DType.i8: "signed char",
    DType.u8: "tt_u8",
    DType.i16: "short",
    DType.u16: "tt_u16",
    DType.i32: "int",
    DType.u32: "tt_u32",
    DType.i64: "tt_i64",
    DType.u64: "tt_u64",
    DType.fp16: "float",
    DType.bf16: "float",
    DType.fp32: "float",
    DType.fp64: "double",
    **{d: "tt_u8" for d in DType if d.is_small},
}
"""Type of an element -> C type of its value in registers."""
STORED_TYPE = {**VALUE_TYPE, DType.fp16: "tt_f16", DType.bf16: "tt_bf16"}
"""Type of an element -> C type in memory."""
SHORT = {DType.fp16: "f16", DType.bf16: "bf16"}
"""Narrow float -> its word in the header's function names."""


def index_text(e: Expr) -> str:
    """C text of an index expression over tt_i64 variables. Raises E1305 for a number beyond 64 bits."""
    if not e.terms:
        return "0"
    parts = []
    for mono, coef in e.terms:
        factors = [_atom(a) for a in mono]
        if abs(literal(coef)) != 1 or not factors:
            factors.insert(0, str(abs(coef)))
        parts.append((" - " if coef < 0 else " + ") + " * ".join(factors))
    text = "".join(parts)
    return text[3:] if text.startswith(" + ") else "-" + text[3:]


def factor_text(e: Expr) -> str:
    """`index_text`, in parentheses unless it is one name or number."""
    text = index_text(e)
    return f"({text})" if " " in text else text


def _atom(a: Var | Floor | Extreme) -> str:
    match a:
        case Var(name=name):
            return name
        case Floor(num=num, den=den):
            if all(c >= 0 for _, c in num.terms):
                return f"({factor_text(num)} / {factor_text(den)})"
            return f"tt_floordiv({index_text(num)}, {index_text(den)})"
        case Extreme(kind=kind, args=args):
            text = index_text(args[0])
            for x in args[1:]:
                text = f"tt_{kind}_size({text}, {index_text(x)})"
            return text


def constant_text(value: Scalar, dtype: DType) -> str:
    """A literal of the value in this dtype."""
    v = number(scalar(constant(value, dtype).item()))
    if dtype == DType.bool:
        return "true" if v else "false"
    if dtype.is_float:
        v = float(v)
        if not math.isfinite(v):
            bits = "0x7fc00000u" if math.isnan(v) else "0x7f800000u" if v > 0 else "0xff800000u"
            text = f"tt_bits_to_f32({bits})"
            return f"(double){text}" if dtype == DType.fp64 else text
        text = f"{v!r}" if dtype == DType.fp64 else f"{v!r}f"
        return f"({text})" if text[0] == "-" else text
    n = int(v)
    if dtype.itemsize < 4:
        return f"({VALUE_TYPE[dtype]})({n})"
    suffix = {DType.i64: "LL", DType.u64: "ULL", DType.u32: "u"}.get(dtype, "")
    if n in (-(1 << 31), -(1 << 63)) and dtype.itemsize * 8 == (-n).bit_length():
        return f"({n + 1}{suffix} - 1)"
    return f"({n}{suffix})" if n < 0 else f"{n}{suffix}"


class Scope:
    """The meaning of names: tensors by parameter, lets by C variable, both with their dtype."""

    def __init__(self, params: dict[str, DType], lets: dict[str, Value]) -> None:
        self.params = params
        self.lets = lets


def scalar_text(e: RegionExpr, scope: Scope) -> Value:
    """(C text, parenthesised where needed; dtype) of an elementwise expression."""
    match e:
        case Read(tensor=t, map=(at,)):
            return f"tt_value({t}[{index_text(at)}])", scope.params[t]
        case Ref(let=name):
            return scope.lets[name]
        case Select(pred=p, then=t, other=o):
            then, d = scalar_text(t, scope)
            other, _ = scalar_text(o, scope)
            return f"({scalar_text(p, scope)[0]} ? {then} : {other})", d
        case _:
            made = computed(e, lambda x: scalar_text(x, scope))
            if made is None:
                why = f"{type(e).__name__} has no CUDA text in a contraction kernel"
                raise fail("InvalidPlan", "cu", why, "cut the Region there")
            return made


def computed(e: RegionExpr, value: Callable[[RegionExpr], Value]) -> Value | None:
    """The text and dtype of a node that is made from the texts of its operands, which `value` returns; None for a node that
    needs an address, a name, or a choice."""
    match e:
        case Const(value=v, dtype=d):
            return constant_text(v, d), d
        case Index(value=v, dtype=d):
            return index_value(v, d), d
        case Within(guards=guards):
            return guards_text(guards), DType.bool
        case Unary(fn=fn, x=x):
            return unary_text(fn, value(x))
        case Binary(fn=fn, x=x, y=y):
            return binary_text(fn, value(x), value(y))
        case Cast(x=x, to=to, bits=bits):
            operand = value(x)
            return (bits_text(operand, to) if bits else cast_text(operand, to)), to
        case _:
            return None


def index_value(value: Expr, dtype: DType) -> str:
    """An index expression as a number of `dtype`."""
    return cast_text((f"(tt_i64)({index_text(value)})", DType.i64), dtype)


def guards_text(guards: tuple[Guard, ...]) -> str:
    """C test that all guards hold."""
    tests = [f"0 <= {factor_text(g.index)} && {factor_text(g.index)} < {factor_text(g.size)}" for g in guards]
    return f"({' && '.join(tests) or 'true'})"


def cast_text(value: Value, to: DType) -> str:
    """The value as dtype `to` (numerics.cast)."""
    text, d = value
    if to == d:
        return text
    if to == DType.bool:
        return f"({text} != 0)"
    if to in SHORT:
        wide = f"tt_to_odd({text})" if d == DType.fp64 else text if VALUE_TYPE[d] == "float" else f"(float){text}"
        return _round(wide, to)
    if d.is_float and not to.is_float:
        return f"tt_to_int<{VALUE_TYPE[to]}>({text})"
    return text if VALUE_TYPE[d] == VALUE_TYPE[to] else f"(({VALUE_TYPE[to]}){text})"


def bits_text(value: Value, to: DType) -> str:
    """The bits of a value in memory, as a value of another dtype of the same size."""
    text, d = value
    stored = f"tt_to_{SHORT[d]}({text})" if d in SHORT else text
    if to == DType.bool:
        return f"(tt_bits<tt_u8>({stored}) != 0)"
    return f"tt_value(tt_bits<{STORED_TYPE[to]}>({stored}))"


def _round(text: str, dtype: DType) -> str:
    return f"tt_round_{SHORT[dtype]}({text})" if dtype in SHORT else text


def unary_text(fn: str, x: Value) -> Value:
    """(text, dtype) of a scalar operation with one operand."""
    text, d = x
    op = OPS[fn]
    match fn:
        case "isnan":
            return f"({text} != {text})", DType.bool
        case "isinf":
            return f"(tt_abs({text}) == tt_bits_to_f32(0x7f800000u))", DType.bool
        case "not" | "bitnot" if d == DType.bool:
            return f"(!{text})", d
        case "neg":
            return (f"(-{text})" if d.is_float else f"tt_neg({text})"), d
        case "bitnot":
            return f"(({VALUE_TYPE[d]})~{text})", d
    out = f"{op.cuda}({text})"
    return (out if op.exact else _round(out, d)), d


def block_text(is_one_row: bool) -> str:
    """C text of this block's number, an int if all blocks lie along x, and a sum of 64 bits otherwise."""
    return "tt_block_x()" if is_one_row else "(tt_i64)tt_block_y() * tt_grid_x() + tt_block_x()"


def binary_text(fn: str, x: Value, y: Value) -> Value:
    """(text, dtype) of a scalar operation with two operands."""
    (a, d), (b, _) = x, y
    op = OPS[fn]
    if op.rule == "compare":
        return f"({a} {op.cuda} {b})", DType.bool
    if d == DType.bool:  # and, or, xor: the same as of bits
        return f"({a} {OPS[fn.removeprefix('bit')].cuda} {b})", d
    if op.rule == "bits":
        return f"(({VALUE_TYPE[d]})({a} {op.cuda} {b}))", d
    if not op.cuda.startswith("tt_"):
        out = f"({a} {op.cuda} {b})" if d.is_float else f"tt_{fn}({a}, {b})"
    elif fn in ("rem", "mod") and d.is_int:
        out = f"tt_i{fn}({a}, {b})"
    else:
        out = f"{op.cuda}({a}, {b})"
    return (out if op.exact else _round(out, d)), d
