"""Elementwise operations: one UOp, or the few of their formula (computed in fp32 for 16-bit floats, rounded once)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tatami.core import ops as scalar_ops
from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr
from tatami.frontend.operation import NoAttrs
from tatami.frontend.operations.elementwise import (
    Alpha,
    Clamp,
    Dequantize,
    Gelu,
    HardSigmoid,
    LeakyAlpha,
    Powi,
    Quantize,
    Selu,
    Shrink,
    To,
)
from tatami.tiny.build import Value
from tatami.tiny.ir import MOVEMENT, Op, PadOp
from tatami.tiny.lowering.rule import Rule, Use, wide
from tatami.tiny.lowering.small_dtypes import carrier, converted, in_own_type


def _scalar(name: str, use: Use[NoAttrs]) -> Value:
    x, *rest = use.present
    if name == "div":
        return x / rest[0]
    return x.fn(name, *rest)


def square(use: Use[NoAttrs]) -> Value:
    """The operand times itself."""
    return use[0] * use[0]


def powi(use: Use[Powi]) -> Value:
    """x to a constant integer power; a negative power is the reciprocal of the positive one."""
    x = wide(use[0])
    power = repeated_product(x, abs(use.attrs.n))
    if use.attrs.n < 0:
        power = power.fn("recip") if x.dtype.is_float else x.builder.const(1, x.dtype).expand(x.shape) / power
    return power.cast(use.dtype)


def repeated_product(x: Value, n: int) -> Value:
    """x to the power n >= 0, by squaring."""
    out: Value | None = None
    base = x
    while n:
        if n & 1:
            out = base if out is None else out * base
        n >>= 1
        if n:
            base = base * base
    return x.builder.const(1, x.dtype).expand(x.shape) if out is None else out


def identity(use: Use[NoAttrs]) -> Value:
    """The operand itself, as the same node."""
    return use[0]


def clamp(use: Use[Clamp]) -> Value:
    """x limited to lo … hi; either bound may be absent."""
    x = use[0]
    for bound, fn in ((use.attrs.lo, "max"), (use.attrs.hi, "min")):
        if bound is not None:
            x = x.fn(fn, bound if x.dtype.is_float else int(bound))
    return x


def cast(use: Use[To]) -> Value:
    """Conversion to another dtype, small dtypes (fp8, int4, …) included. Decoded fp8 is recorded for `tf32`."""
    kind = use.operand_types[0]
    assert kind is not None
    out = converted(use[0], kind.dtype, use.attrs.to)
    if kind.dtype.is_fp8 and use.attrs.to == DType.fp32:
        use.builder.codes[out.id] = (use[0], kind.dtype)
    return out


def tf32(use: Use[NoAttrs]) -> Value:
    """x rounded to 10 fraction bits. fp8 numbers lose nothing by it: decoding, and movement after it, are built again from the
    codes, so that a product can multiply the codes themselves."""
    b = use.builder
    by_id = {n.id: n for n in b.nodes}
    moves: list[Op] = []
    found = use[0].id
    while found not in b.codes and isinstance(op := by_id[found].op, MOVEMENT) and not isinstance(op, PadOp):
        moves.append(op)
        found = by_id[found].src[0]
    if found not in b.codes:
        return use[0].fn("tf32")
    return moved(in_own_type(*b.codes[found]).cast(DType.fp32), reversed(moves)).fn("tf32")


def bitcast(use: Use[To]) -> Value:
    """The same bits as another dtype of the same size."""
    return use[0].bitcast(carrier(use.attrs.to))


def moved(x: Value, moves: Iterable[Op]) -> Value:
    """`x` after the movement ops `moves`, in order."""
    for op in moves:
        x = x.builder.add(op, (x,))
    return x


def _formula(f: Callable[[Value, Use[Any]], Value]) -> Rule:
    """The rule of a unary float formula, computed in fp32 or wider and rounded once."""

    def rule(use: Use[Any]) -> Value:
        return f(wide(use[0]), use).cast(use.dtype)

    return rule


def softplus(x: Value) -> Value:
    """log(1 + e^x) as max(x, 0) + log(1 + e^-|x|), which does not overflow."""
    return x.fn("relu") + log1p((-x.fn("abs")).fn("exp"))


def log1p(x: Value) -> Value:
    """log(1 + x) as log u + (x - (u - 1))/u with u = 1 + x: the second term restores the digits that u lost. x itself if u
    rounds to 1."""
    u = x + 1.0
    log_u = u.fn("log")
    lost = x - (u - 1.0)
    near = (x.fn("abs") < 1.0).where(log_u + lost / u, log_u)
    return u.fn("eq", 1.0).where(x, near)


def expm1(x: Value) -> Value:
    """e^x - 1 as u - 1 + u (x - log u) with u = e^x: the second term restores the digits that u lost. x itself if u rounds to
    1."""
    u = x.fn("exp")
    below = u - 1.0
    near = (x.fn("abs") < 1.0).where(below + (x - u.fn("log")) * u, below)
    return u.fn("eq", 1.0).where(x, near)


def gelu(x: Value, use: Use[Gelu]) -> Value:
    """x * Φ(x), exactly by erf or approximately by tanh."""
    if use.attrs.approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
        return x * 0.5 * (inner.fn("tanh") + 1.0)
    return x * 0.5 * ((x * math.sqrt(0.5)).fn("erf") + 1.0)


def silu(x: Value, use: Use[Any]) -> Value:
    """The operand times its sigmoid."""
    return x * x.fn("sigmoid")


def elu(x: Value, use: Use[Alpha]) -> Value:
    """x if x > 0, else alpha * (e^x - 1)."""
    return (x > 0.0).where(x, expm1(x.fn("min", 0.0)) * use.attrs.alpha)


def celu(x: Value, use: Use[Alpha]) -> Value:
    """x if x > 0, else alpha * (e^(x/alpha) - 1)."""
    a = use.attrs.alpha
    return (x > 0.0).where(x, expm1(x.fn("min", 0.0) / a) * a)


def selu(x: Value, use: Use[Selu]) -> Value:
    """gamma * x if x > 0, else gamma * alpha * (e^x - 1)."""
    return (x > 0.0).where(x, expm1(x.fn("min", 0.0)) * use.attrs.alpha) * use.attrs.gamma


def leaky_relu(x: Value, use: Use[LeakyAlpha]) -> Value:
    """x if x >= 0, else alpha * x."""
    return (x >= 0.0).where(x, x * use.attrs.alpha)


def thresholded_relu(x: Value, use: Use[Alpha]) -> Value:
    """The operand if it is above alpha, else 0."""
    return (x > use.attrs.alpha).where(x, 0.0)


def hard_sigmoid(x: Value, use: Use[HardSigmoid]) -> Value:
    """alpha * x + beta, limited to 0 … 1."""
    return (x * use.attrs.alpha + use.attrs.beta).fn("min", 1.0).fn("max", 0.0)


def hard_swish(x: Value, use: Use[Any]) -> Value:
    """x * hard_sigmoid(x) with slope 1/6 and offset 1/2."""
    return x * (x * (1.0 / 6.0) + 0.5).fn("min", 1.0).fn("max", 0.0)


def shrink(use: Use[Shrink]) -> Value:
    """x - bias if x > lambd, x + bias if x < -lambd, else 0."""
    x = use[0]
    a = use.attrs
    down = (x > a.lambd).where(x - a.bias, 0.0) if x.dtype.is_float else (x > int(a.lambd)).where(x - int(a.bias), 0)
    if x.dtype.is_float:
        return (x < -a.lambd).where(x + a.bias, down)
    return (x < -int(a.lambd)).where(x + int(a.bias), down)


def floordiv(use: Use[NoAttrs]) -> Value:
    """The quotient rounded down. Integers: the truncated quotient, less 1 if it is negative and inexact. Floats: x less its
    exact remainder divides evenly, so the result does not depend on the rounding of x / y; x / 0 as in `div`."""
    x, y = wide(use[0]), wide(use[1])
    zero: float = 0.0 if x.dtype.is_float else 0
    rest = x.fn("rem", y)
    down = rest.fn("ne", zero).fn("and", (rest < zero).fn("xor", y < zero)).cast(x.dtype)
    if not x.dtype.is_float:
        return x.fn("idiv", y) - down
    return y.fn("eq", 0.0).where(x / y, ((x - rest) / y).fn("round") - down).cast(use.dtype)


def prelu(use: Use[NoAttrs]) -> Value:
    """x if x >= 0, else slope * x with a tensor of slopes."""
    x, slope = wide(use[0]), wide(use[1])
    return (x >= 0.0).where(x, x * slope).cast(use.dtype)


def isfinite(use: Use[NoAttrs]) -> Value:
    """True where x is neither NaN nor infinite."""
    x = use[0]
    return x.fn("isnan").fn("or", x.fn("isinf")).fn("not")


def _along(v: Value, axis: int, rank: int) -> Value:
    """A rank-1 operand placed on `axis` of a rank-`rank` value; a scalar stays."""
    return v.reshape([v.shape[0] if i == axis else 1 for i in range(rank)]) if v.rank == 1 and rank > 0 else v


def quantize(use: Use[Quantize]) -> Value:
    """x / scale rounded to even, plus zero point, saturated in the result's dtype; scale per tensor or along `axis`."""
    x, scale = wide(use[0]), wide(use[1])
    axis = use.attrs.axis % x.rank if x.rank else 0
    y = (x / _along(scale, axis, x.rank)).fn("round")
    zero = use.optional(2)
    if zero is not None:
        y = y + _along(zero.cast(y.dtype), axis, x.rank)
    return y.cast(use.attrs.to)  # saturates


def dequantize(use: Use[Dequantize]) -> Value:
    """(x - zero point) * scale; scale per tensor, along `axis`, or per block of `axis`."""
    x, scale, zero = use[0], wide(use[1]), use.optional(2)
    axis, block = use.attrs.axis % x.rank if x.rank else 0, use.attrs.block

    def placed(t: Value) -> Value:
        return _along_blocks(t, axis, block, x.shape) if block else _along(t, axis, x.rank)

    kind = use.operand_types[0]
    assert kind is not None
    to = kind.dtype if not (kind.dtype.is_int or kind.dtype.is_small_int) else DType.i32 if x.dtype.itemsize < 4 else DType.i64
    wider = converted(x, kind.dtype, to)
    if zero is not None:
        zero_kind = use.operand_types[2]
        assert zero_kind is not None
        wider = wider - placed(converted(zero, zero_kind.dtype, to))
    return (wider.cast(scale.dtype) * placed(scale)).cast(use.attrs.to)


def _along_blocks(t: Value, axis: int, block: int, shape: Shape) -> Value:
    """One number per block of an axis as one per element."""
    lead, rest = t.shape[:axis], t.shape[axis + 1 :]
    wide = t.unsqueeze(axis + 1).expand((*lead, t.shape[axis], expr(block), *rest))
    whole = wide.reshape((*lead, t.shape[axis] * block, *rest))
    return whole.shrink((0,) * len(shape), shape)


ELEMENTWISE: dict[str, Rule] = {
    **{name: partial(_scalar, name) for name in scalar_ops.OPS},
    "square": square,
    "powi": powi,
    "identity": identity,
    "contiguous": identity,
    "clamp": clamp,
    "cast": cast,
    "tf32": tf32,
    "bitcast": bitcast,
    "gelu": _formula(gelu),
    "silu": _formula(silu),
    "mish": _formula(lambda x, use: x * softplus(x).fn("tanh")),
    "softplus": _formula(lambda x, use: softplus(x)),
    "softsign": _formula(lambda x, use: x / (x.fn("abs") + 1.0)),
    "log_sigmoid": _formula(lambda x, use: -softplus(-x)),
    "elu": _formula(elu),
    "celu": _formula(celu),
    "selu": _formula(selu),
    "leaky_relu": _formula(leaky_relu),
    "thresholded_relu": _formula(thresholded_relu),
    "hard_sigmoid": _formula(hard_sigmoid),
    "hard_swish": _formula(hard_swish),
    "shrink": shrink,
    "log1p": _formula(lambda x, use: log1p(x)),
    "expm1": _formula(lambda x, use: expm1(x)),
    "log10": _formula(lambda x, use: x.fn("log") * (1.0 / math.log(10.0))),
    "isfinite": isfinite,
    "floordiv": floordiv,
    "prelu": prelu,
    "quantize": quantize,
    "dequantize": dequantize,
}
"""Rules of this family by operation."""
