"""Random uses of operations on values: elementwise, reductions, scans, orders, normalisations, random numbers.

A step takes the model so far and a value, and gives new values, or None where the operation does not apply. Operations that
rounding could flip read fresh inputs that are small multiples of 1/4.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from functools import partial
from typing import Any

from tatami.core.dtype import DType as F

STEPS: dict[str, Any] = {}
"""Operation of the table -> the step that draws it."""


def step(*names):
    def register(f):
        for name in names:
            assert name not in STEPS, name
            STEPS[name] = partial(f, name)
        return f

    return register


def floats(x):
    return x.dtype.is_float


def signed(x):
    return x.dtype in (F.i8, F.i16, F.i32, F.i64)


@step(
    *[
        "sin",
        "cos",
        "atan",
        "asinh",
        "tanh",
        "erf",
        "sigmoid",
        "relu",
        "abs",
        "neg",
        "square",
        "silu",
        "gelu",
        "mish",
        "softplus",
        "softsign",
        "log_sigmoid",
        "hard_swish",
    ]
)
@step(*["exp", "exp2", "expm1", "sinh", "cosh", "elu", "celu", "selu", "leaky_relu", "hard_sigmoid"])
def smooth(name, m, x):
    return x.clamp(-3.0, 3.0).one(name) if floats(x) else None


@step(*["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "recip", "acosh"])
def of_positive(name, m, x):
    return (x.abs() + 1.25).one(name) if floats(x) else None


@step("asin", "acos", "atanh", "tan")
def of_less_than_one(name, m, x):
    return x.clamp(-0.75, 0.75).one(name) if floats(x) else None


@step(*["sign", "floor", "ceil", "round", "trunc", "tf32", "isnan", "isinf", "isfinite", "thresholded_relu", "shrink"])
def of_exact(name, m, x):
    return m.exact(x).one(name) if floats(x) else None


@step("identity", "contiguous")
def same(name, m, x):
    return x.one(name)


@step("bitnot")
def bits(name, m, x):
    return m.exact(x).one(name) if x.dtype.is_int else None


@step("not")
def negated(name, m, x):
    return m.truth(x).one(name)


@step("and", "or", "xor")
def logic(name, m, x):
    return m.truth(x).one(name, m.fresh(x.shape, F.bool))


@step("bitand", "bitor", "bitxor")
def bit_pairs(name, m, x):
    return x.one(name, m.fresh(x.shape, x.dtype)) if x.dtype.is_int else None


@step("shl", "shr")
def shifts(name, m, x):
    return x.one(name, m.r.randint(0, 7)) if x.dtype.is_int else None


@step("add", "sub", "mul", "max", "min")
def pairs(name, m, x):
    if x.dtype == F.bool:
        return None
    y = m.peer(x) if m.r.random() < 0.8 else m.fresh((), x.dtype)
    return x.clamp(-4.0, 4.0).one(name, y.clamp(-4.0, 4.0)) if floats(x) else x.one(name, y)


@step("div")
def quotient(name, m, x):
    if x.dtype == F.bool:
        return None
    return x.one(name, m.peer(x).abs() + 1.0) if floats(x) else x.one(name, m.fresh(x.shape, x.dtype))


@step("idiv", "rem", "mod", "floordiv")
def whole_quotients(name, m, x):
    if x.dtype == F.bool or (name == "idiv" and floats(x)):
        return None
    return m.exact(x).one(name, m.fresh(x.shape, x.dtype) if not floats(x) else m.fresh(x.shape, x.dtype).abs() + 0.25)


@step("pow", "atan2")
def two_floats(name, m, x):
    return (x.abs() + 0.5).clamp(0.5, 3.0).one(name, m.peer(x).clamp(-2.0, 2.0)) if floats(x) else None


@step("powi")
def power(name, m, x):
    return x.clamp(-2.0, 2.0).powi(m.r.choice([0, 1, 2, 3, 5])) if floats(x) else x.powi(2) if x.dtype.is_int else None


@step("eq", "ne", "lt", "le", "gt", "ge")
def comparisons(name, m, x):
    return m.exact(x).one(name, m.fresh(x.shape, x.dtype))


@step("where")
def chosen(name, m, x):
    return m.fresh(x.shape, F.bool).where(x, m.peer(x))


@step("clamp")
def clamped(name, m, x):
    return x.clamp(m.r.choice([None, 1]), 3) if x.dtype != F.bool else None


@step("prelu")
def sloped(name, m, x):
    return x.prelu(m.peer(x).clamp(-1.0, 1.0)) if floats(x) else None


@step("cast")
def cast(name, m, x):
    to = m.r.choice([F.fp32, F.fp16, F.bf16, F.fp64, F.i32, F.i64, F.i8, F.u8, F.u32, F.bool])
    return (m.exact(x) if floats(x) and (not to.is_float or to.itemsize > x.dtype.itemsize) else x).one(name, to=to)


@step("bitcast")
def reinterpreted(name, m, x):
    same_size = {F.fp32: F.i32, F.i32: F.u32, F.fp16: F.i16, F.fp64: F.u64, F.i8: F.u8, F.u8: F.i8, F.i64: F.u64}
    return m.exact(x).bitcast(same_size[x.dtype]) if x.dtype in same_size else None


@step("quantize")
def quantized(name, m, x):
    return m.exact(x).quantize(m.g.number(0.25, x.dtype), to=m.r.choice([F.i8, F.u8])) if x.dtype in (F.fp32, F.fp16) else None


@step("dequantize")
def dequantized(name, m, x):
    return x.dequantize(m.g.number(0.25, F.fp32), to=F.fp32) if x.dtype in (F.i8, F.u8) else None


def some_axes(m, x):
    return tuple(sorted(m.r.sample(range(x.rank), m.r.randint(1, x.rank))))


@step("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_sum_square", "reduce_l1")
@step("reduce_l2", "reduce_log_sum", "reduce_log_sum_exp", "variance", "reduce_prod")
def reduced(name, m, x):
    if (
        not x.rank
        or x.dtype == F.bool
        or (not floats(x) and name not in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"))
    ):
        return None
    axes = some_axes(m, x)
    if m.is_empty(x, axes) and name != "reduce_sum":
        return None
    if floats(x):
        x = {"reduce_prod": lambda: x.clamp(-1.0, 1.0) * 0.125 + 1.0, "reduce_log_sum": lambda: x.abs() + 0.5}.get(
            name, lambda: x.clamp(-4.0, 4.0)
        )()
    return x.one(name, axes=axes, keepdims=m.r.random() < 0.4)


@step("reduce_and", "reduce_or")
def truth_reduced(name, m, x):
    return m.truth(x).one(name, axes=some_axes(m, x), keepdims=m.r.random() < 0.4) if x.rank else None


@step("argmax", "argmin")
def positions(name, m, x):
    if not x.rank or x.dtype == F.bool or m.is_empty(x):
        return None
    return m.exact(x).one(name, axis=m.axis(x) - m.r.choice([0, x.rank]), keepdims=m.r.random() < 0.4, last=m.r.random() < 0.3)


@step("hardmax")
def hardest(name, m, x):
    return m.exact(x).hardmax(m.axis(x)) if x.rank and floats(x) and not m.is_empty(x) else None


@step("cumsum", "cumprod", "cummax", "cummin")
def running(name, m, x):
    if not x.rank or x.dtype == F.bool:
        return None
    x = x.clamp(-1.0, 1.0) * 0.125 + 1.0 if floats(x) and name == "cumprod" else x
    return x.one(name, axis=m.axis(x), exclusive=m.r.random() < 0.3, reverse=m.r.random() < 0.3)


@step("softmax", "log_softmax")
def normalised(name, m, x):
    return x.one(name, axis=m.axis(x)) if x.rank and floats(x) and not m.is_empty(x) else None


@step("layer_norm", "rms_norm")
def over_last_axes(name, m, x):
    if not x.rank or not floats(x) or m.is_empty(x):
        return None
    axis = m.axis(x)
    if m.count(x.shape[axis:]) < 2:
        return None
    scale = m.fresh(x.shape[axis:], x.dtype) if m.r.random() < 0.6 else None
    return x.one(name, scale, axis=axis, eps=0.25)


@step("batch_norm", "instance_norm", "group_norm")
def over_channels(name, m, x):
    if x.rank < 3 or not floats(x) or m.is_empty(x) or x.shape[1].as_int() is None:
        return None
    c, channel = x.shape[1].as_int(), (x.shape[1],)
    scale, bias = m.fresh(channel, x.dtype), m.fresh(channel, x.dtype)
    if name == "batch_norm":
        return x.batch_norm(scale, bias, m.fresh(channel, x.dtype), m.fresh(channel, x.dtype).abs() + 0.5)
    if name == "instance_norm":
        return x.instance_norm(scale, bias, eps=0.25)
    return x.group_norm(m.r.choice([k for k in range(1, c + 1) if c % k == 0]), scale, bias, eps=0.25)


@step("lp_normalize")
def by_its_norm(name, m, x):
    return (
        (x.clamp(-4.0, 4.0) + 0.5).lp_normalize(m.axis(x), m.r.choice([1, 2]), 0.5)
        if x.rank and floats(x) and not m.is_empty(x)
        else None
    )


@step("lrn")
def by_its_neighbours(name, m, x):
    return x.clamp(-4.0, 4.0).lrn(m.r.choice([1, 3, 4]), 0.5, 0.75, 2.0) if x.rank >= 2 and floats(x) else None


@step("sort", "topk")
def ordered(name, m, x):
    if not x.rank or x.dtype == F.bool:
        return None
    x, axis = m.exact(x), m.axis(x)
    if name == "sort":
        return x.sort(axis, m.r.random() < 0.5)
    n = x.shape[axis].as_int()
    return x.topk(m.r.randint(1, n), axis, m.r.random() < 0.5) if n else None


@step("argsort")
def order(name, m, x):
    return m.exact(x).argsort(m.axis(x), m.r.random() < 0.5) if x.rank and x.dtype != F.bool else None


def key(m):
    return m.g.number(m.r.randint(0, 2**32), F.u64)


@step("rand_u32")
def words(name, m, x):
    return m.g.rand_u32(x.shape, key(m))


@step("uniform", "normal")
def noise(name, m, x):
    return x + getattr(m.g, name)(x.shape, key(m), dtype=x.dtype) if floats(x) else None


@step("dropout")
def dropped(name, m, x):
    return x.dropout(key(m), m.r.choice([0.0, 0.25, 0.5])) if floats(x) else None


@step("constant", "full")
def with_a_number(name, m, x):
    if x.dtype == F.bool:
        return None
    return x + (m.g.number(2, x.dtype) if name == "constant" else m.g.full(x.shape, 2, x.dtype))


@step("size", "iota")
def with_coordinates(name, m, x):
    if not x.rank or x.dtype == F.bool:
        return None
    axis = m.axis(x)
    y = m.g.size_of(x.shape[axis]) if name == "size" else m.g.iota(x.shape, axis)
    return x + y.cast(x.dtype) * (0.125 if floats(x) else 1)


@step("eye")
def with_a_diagonal(name, m, x):
    return x * m.g.eye(x.shape[0], x.shape[1], m.r.randint(-1, 1), x.dtype) if x.rank == 2 and x.dtype != F.bool else None


@step("kernel")
def formula(name, m, x):
    return m.g.kernel("input0 * 2 + 0.125 * ridx0", x) if x.rank and x.dtype == F.fp32 else None


@step("kernel_reduce")
def formula_reduced(name, m, x):
    return m.g.kernel_reduce("input0 * 0.5", x, op="sum", axes=[m.axis(x)]) if x.rank and x.dtype == F.fp32 else None


@step("kernel_scan")
def formula_scanned(name, m, x):
    return m.g.kernel_scan("input0 * 0.5", x, op="sum", axis=m.axis(x)) if x.rank and x.dtype == F.fp32 else None
