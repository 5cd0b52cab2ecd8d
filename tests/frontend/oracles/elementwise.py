"""Elementwise operations on every dtype: infinities, NaN, both zeros, the ends of integers, a length with a tail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

from tests.frontend.oracles.oracle import Oracle, oracle
from tests.random_models.torch_meaning import SAME_NAME

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 0.25, -0.25, 0.75, 7.5]
SPECIAL += [1e-3, -1e-3, 12.0, -12.0, 40.0, -40.0, 100.0, -100.0, 3.7, -3.7, 0.1, -0.1, 0.9, -0.9, 20.5, -20.5, 1e-4, 2.0]
FLOATS: dict[str, tuple[Any, torch.dtype]] = {
    "fp16": (np.float16, torch.float16),
    "bf16": (ml_dtypes.bfloat16, torch.bfloat16),
    "fp32": (np.float32, torch.float32),
    "fp64": (np.float64, torch.float64),
}
INTS: list[type[np.integer[Any]]] = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def to_bits(x: torch.Tensor, bits: int) -> torch.Tensor:
    """`x` rounded to `bits` significant bits, ties away from zero."""
    fraction, exponent = torch.frexp(x)
    kept = torch.sign(fraction) * torch.floor(torch.abs(fraction) * 2.0**bits + 0.5) / 2.0**bits
    return torch.where(torch.isfinite(x), torch.ldexp(kept, exponent), x)


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: getattr(torch, name) for name in SAME_NAME},
    "sign": lambda x: torch.where(torch.isnan(x), x, torch.sign(x)),
    "recip": torch.reciprocal,
    "relu": F.relu,
    "silu": F.silu,
    "mish": lambda x: x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x))),
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "softsign": F.softsign,
    "log_sigmoid": F.logsigmoid,
    "hard_swish": F.hardswish,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "leaky_relu": F.leaky_relu,
    "hard_sigmoid": lambda x: torch.clamp(0.2 * x + 0.5, 0.0, 1.0),
    "thresholded_relu": lambda x: torch.where(x > 1.0, x, 0.0),
    "tf32": lambda x: to_bits(x, 11),
    "shrink": lambda x: torch.where(x < -0.5, x, torch.where(x > 0.5, x, 0.0)),
}


def values(dtype: Any) -> np.ndarray:
    return np.array(SPECIAL).astype(dtype)


def exact(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x.astype(np.float64))


@oracle
def unary_of_every_float(o: Oracle) -> None:
    for label, (dtype, to) in FLOATS.items():
        x = values(dtype)
        t = o.given(x, ("N",))
        for name, f in UNARY.items():
            o.same(f"{name} {label}", t.one(name), f(exact(x)).to(to), 8.0 if label == "fp64" else 4.0, each=True)
        for name, g in (("isnan", torch.isnan), ("isinf", torch.isinf), ("isfinite", torch.isfinite)):
            o.same(f"{name} {label}", t.one(name), g(exact(x)))
        o.same(f"gelu {label}", t.gelu(), F.gelu(exact(x)).to(to), 1.0)
        o.same(f"gelu tanh {label}", t.gelu("tanh"), F.gelu(exact(x), approximate="tanh").to(to), 4.0)
        o.same(f"clamp {label}", t.clamp(-1, 2.5), torch.clamp(exact(x), -1, 2.5).to(to))
        o.same(f"clamp below {label}", t.clamp(lo=-1), torch.clamp(exact(x), min=-1).to(to))
        for n in (0, 1, 2, 3, 7, -1, -2):
            o.same(f"powi {n} {label}", t**n, (exact(x) ** n).to(to), 8.0, each=True)


PAIRS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "rem": torch.fmod,
    "atan2": torch.atan2,
    "pow": torch.pow,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


@oracle
def pairs_of_every_float(o: Oracle) -> None:
    """Every special number with every other."""
    for label, (dtype, to) in FLOATS.items():
        line = values(dtype)
        a, b = (m.ravel() for m in np.meshgrid(line, line))
        ta, tb = o.given(a), o.given(b)
        for name, f in PAIRS.items():
            want = f(exact(a), exact(b))
            o.same(f"{name} {label}", ta.one(name, tb), want if want.dtype == torch.bool else want.to(to), 8.0, each=True)
        with np.errstate(all="ignore"):
            o.same(f"mod {label}", ta % tb, torch.from_numpy(np.mod(exact(a).numpy(), exact(b).numpy())).to(to), 8.0, each=True)
            q = np.where(b == 0, exact(a).numpy() / exact(b).numpy(), np.floor_divide(exact(a).numpy(), exact(b).numpy()))
        o.same(f"floordiv {label}", ta // tb, torch.from_numpy(q).to(to), 4.0, each=True)
        o.same(f"prelu {label}", ta.prelu(tb), torch.where(exact(a) >= 0, exact(a), exact(a) * exact(b)).to(to), each=True)
        o.same(f"where {label}", (ta > 0).where(ta, tb), torch.where(exact(a) > 0, exact(a), exact(b)).to(to), each=True)


@oracle
def whole_numbers(o: Oracle) -> None:
    """Every integer dtype: wrapping at the ends, quotients and remainders of both signs, shifts of any count."""
    for dtype in INTS:
        info = np.iinfo(dtype)
        line = np.array([info.min, info.min + 1, 0, 1, 2, 3, 7, 8, info.max // 2, info.max - 1, info.max], dtype)
        if info.min < 0:
            line = np.concatenate([line, np.array([-1, -2, -3, -7], dtype)])
        a, b = (m.ravel() for m in np.meshgrid(line, line))
        ta, tb, name = o.given(a), o.given(b), np.dtype(dtype).name
        with np.errstate(all="ignore"):
            pairs = {
                "add": a + b, "sub": a - b, "mul": a * b, "max": np.maximum(a, b), "min": np.minimum(a, b),
                "eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b,
                "bitand": a & b, "bitor": a | b, "bitxor": a ^ b,
            }  # fmt: skip
            big_a, big_b = [int(v) for v in a], [int(v) for v in b]

            def wrapped(values: list[int], dtype: Any = dtype) -> np.ndarray:
                bits = np.dtype(dtype).itemsize * 8
                return (
                    np.array([v & ((1 << bits) - 1) for v in values], np.uint64).astype(np.dtype(f"u{bits // 8}")).view(dtype)
                )

            def truncated(x: int, y: int) -> int:
                return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

            pairs["idiv"] = pairs["div"] = wrapped([truncated(x, y) for x, y in zip(big_a, big_b)])
            pairs["rem"] = wrapped([0 if y == 0 else x - y * truncated(x, y) for x, y in zip(big_a, big_b)])
            pairs["mod"] = wrapped([0 if y == 0 else x % y for x, y in zip(big_a, big_b)])
            pairs["floordiv"] = wrapped([0 if y == 0 else x // y for x, y in zip(big_a, big_b)])
            bits = np.dtype(dtype).itemsize * 8
            pairs["shl"] = wrapped([x << y if 0 <= y < bits else 0 for x, y in zip(big_a, big_b)])
            pairs["shr"] = wrapped([x >> y if 0 <= y < bits else (-1 if x < 0 else 0) for x, y in zip(big_a, big_b)])
        for op, want in pairs.items():
            o.same(f"{op} {name}", ta.one(op, tb), want)
        with np.errstate(all="ignore"):
            o.same(f"bitnot {name}", ~ta, ~a)
            o.same(f"square {name}", ta.square(), a * a)
            for n in (0, 1, 2, 5):
                o.same(f"powi {n} {name}", ta**n, wrapped([x**n for x in big_a]))
            o.same(f"clamp {name}", ta.clamp(1, 100), np.clip(a, 1, 100).astype(dtype))
            o.same(f"relu {name}", ta.relu(), np.maximum(a, 0).astype(dtype))
            if info.min < 0:
                o.same(f"neg {name}", -ta, -a)
                o.same(f"abs {name}", abs(ta), np.abs(a))
                o.same(f"sign {name}", ta.sign(), np.sign(a))
            small = np.array([0, 1, 2, 3, 5], dtype)
            c, d = (m.ravel() for m in np.meshgrid(line, small))
            o.same(f"pow {name}", o.given(c).pow(o.given(d)), wrapped([int(x) ** int(y) for x, y in zip(c, d)]))


@oracle
def truth_values(o: Oracle) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    ta, tb = o.given(a), o.given(b)
    for name, want in {"and": a & b, "or": a | b, "xor": a ^ b, "eq": a == b, "ne": a != b}.items():
        o.same(name, ta.one(name, tb), want)
    o.same("not", ~ta, ~a)
    o.same("&", ta & tb, a & b)
    o.same("^ True", ta ^ True, a ^ True)
    o.same("True |", True | ta, a | True)
    o.same("where", ta.where(tb, False), np.where(a, b, False))
    o.same("where of numbers", o.g.where(ta, o.given(np.float32(2)), 1.0), np.where(a, np.float32(2), np.float32(1)))
    o.same("identity", ta.one("identity"), a)
    o.same(
        "contiguous",
        o.given(np.array([[1, 2], [3, 4]], np.float32)).transpose().contiguous(),
        np.array([[1, 3], [2, 4]], np.float32),
    )


@oracle
def casts_between_all_dtypes(o: Oracle) -> None:
    """Floats to integers truncate and saturate, NaN becomes 0; integers wrap; bool is 0 or 1."""
    floats = {label: dtype for label, (dtype, _) in FLOATS.items()}
    for label, dtype in floats.items():
        x = values(dtype)
        t = o.given(x)
        for other, to in floats.items():
            with np.errstate(all="ignore"):
                o.same(f"{label} to {other}", t.cast(other), x.astype(np.float64).astype(to).astype(np.float64), 0.0, each=True)
        for to in INTS:
            info = np.iinfo(to)
            whole = [0 if np.isnan(v) else int(min(max(v, info.min), info.max)) for v in x.astype(np.float64)]
            o.same(f"{label} to {np.dtype(to)}", t.cast(to), np.array(whole, to))
        with np.errstate(all="ignore"):
            o.same(f"{label} to bool", t.cast("bool"), x.astype(np.float64) != 0)
    for dtype in INTS:
        info = np.iinfo(dtype)
        x = np.array([info.min, info.min + 1, 0, 1, 2, 100, info.max - 1, info.max], dtype)
        t = o.given(x)
        for to in INTS:
            o.same(f"{np.dtype(dtype)} to {np.dtype(to)}", t.cast(to), x.astype(to))
        for label, (to, _) in FLOATS.items():
            with np.errstate(all="ignore"):
                want = x.astype(np.float64) if label == "fp64" else x.astype(np.float32).astype(to).astype(np.float64)
            o.same(f"{np.dtype(dtype)} to {label}", t.cast(label), want, 1.0, each=True)
        o.same(f"{np.dtype(dtype)} to bool", t.cast("bool"), x != 0)
    truth = np.array([True, False, True])
    for dtype in (*INTS, np.float16, np.float32, np.float64):
        o.same(f"bool to {np.dtype(dtype)}", o.given(truth).cast(dtype), truth.astype(dtype))
    x = values(np.float32)
    o.same("bitcast", o.given(x).bitcast("i32"), x.view(np.int32))
    o.same("bitcast back", o.given(x.view(np.int32)).bitcast("fp32"), x, 0.0)


@oracle
def quantization(o: Oracle) -> None:
    x = np.linspace(-4, 4, 3 * 5 * 7, dtype=np.float32).reshape(3, 5, 7)
    scale, zero = np.array([0.05, 0.1, 0.2, 0.3, 0.4], np.float32), np.array([0, 3, -5, 7, 1], np.int8)
    along = (1, 5, 1)
    want = np.clip(np.rint(x / scale.reshape(along)) + zero.reshape(along), -128, 127).astype(np.int8)
    o.same("quantize", o.given(x).quantize(o.given(scale), o.given(zero), to="i8", axis=1), want)
    back = (want.astype(np.float32) - zero.reshape(along)) * scale.reshape(along)
    o.same("dequantize", o.given(want).dequantize(o.given(scale), o.given(zero), axis=-2), back)
    o.same(
        "by one scale",
        o.given(x).quantize(o.given(np.float32(0.1)), to="u8"),
        np.clip(np.rint(x / np.float32(0.1)), 0, 255).astype(np.uint8),
    )
