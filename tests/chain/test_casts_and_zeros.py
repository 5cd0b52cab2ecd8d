"""Casts at the edges of every type, and the sign of zero of every unary function, on every target and in folded constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.numbers.numerics import cast
from tatami.core.ops import OPS
from tatami.core.tensor import numpy_dtype

INTS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
DTYPES = ("bool", *INTS, *FLOATS)
TARGETS = ("reference", "cpu", "emulated-sm80")


def edges(dtype: str) -> np.ndarray:
    """Values where a conversion may go another way: ends of every integer type and their neighbours, halves, nan and inf."""
    kind = numpy_dtype(DType(dtype))
    if dtype == "bool":
        return np.array([False, True] * 9, kind)
    if dtype in INTS:
        info = np.iinfo(kind)
        near = {0, 1, -1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32}
        near |= {2**53 + 1, 2**62 - 1, 2**62 + 257, 2**63 - 1, 2**63 - 513, 2**63, 2**64 - 1, -128, -129, -(2**31), -(2**63)}
        near |= {2**63 + 1025, 2**64 - 1025, info.min, info.max, info.min + 1, info.max - 1}
        return np.array(sorted(v for v in near if info.min <= v <= info.max), kind)
    ends = [
        0.0,
        -0.0,
        0.4,
        0.5,
        -0.5,
        1.5,
        2.5,
        -1.0,
        -1.5,
        127.5,
        128.0,
        -128.5,
        -129.0,
        255.0,
        255.9,
        256.0,
        300.0,
        3e9,
        -3e9,
        65504.0,
    ]
    ends += [
        32767.5,
        65535.5,
        2.0**31,
        2.0**31 - 128,
        -(2.0**31),
        2.0**32,
        2.0**62,
        2.0**63,
        2.0**63 - 2**39,
        -(2.0**63),
        2.0**64,
        1e30,
    ]
    ends += [-1e30, 1e-40, 5e-324, float("inf"), float("-inf"), float("nan")]
    with np.errstate(over="ignore"):
        return np.array(ends, np.float64).astype(kind)


def result(build: Any, target: str, **arrays: np.ndarray) -> np.ndarray:
    g = tt.Graph("g")
    g.output("y", build(g))
    return np.asarray(tt.compile(g, target=target)(arrays)["y"])


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """True if all bits are equal, with one nan equal to another."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    nan = (
        np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
        if a.dtype.kind not in "iub"
        else np.zeros(a.shape, bool)
    )
    raw = f"u{a.dtype.itemsize}"
    return bool((nan | (np.ascontiguousarray(a).view(raw) == np.ascontiguousarray(b).view(raw))).all())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", DTYPES)
def test_casts_agree_at_the_edges(source: str, target: str) -> None:
    x = edges(source)
    x = np.concatenate([x] * 3)[: 2 * len(x) + 1]  # whole vectors and a tail
    g = tt.Graph("casts")
    a, c = g.input("x", x.shape, DType(source)), g.constant(x)
    for to in DTYPES:
        g.output(to, a.cast(DType(to)))
        g.output(f"{to} of a constant", c.cast(DType(to)))
    got = tt.compile(g, target=target)(x=x)
    with np.errstate(all="ignore"):
        for to in DTYPES:
            wanted = cast(x, DType(to))
            for name in (to, f"{to} of a constant"):
                have = np.asarray(got[name]).view(wanted.dtype) if to == "bf16" else np.asarray(got[name])
                assert same(have, wanted), f"{name}: {x[:40]} gives {have[:40]}, not {wanted[:40]}"


@pytest.mark.parametrize("source", FLOATS)
def test_the_table_of_casts(source: str) -> None:
    """Float to integer truncates and saturates, nan is 0; nan and everything but 0 are true; integers wrap."""
    x = edges(source).astype(np.float64)
    for to in INTS:
        info = np.iinfo(numpy_dtype(DType(to)))
        wanted = [
            0
            if np.isnan(v)
            else info.max
            if v == np.inf
            else info.min
            if v == -np.inf
            else min(max(int(v), info.min), info.max)
            for v in x
        ]
        assert cast(edges(source), DType(to)).tolist() == wanted
    assert cast(edges(source), DType.bool).tolist() == [bool(v != 0) for v in x]


def libm(name: str) -> Any:
    own = {
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
        "neg": "negative",
    }
    return getattr(np, own.get(name, name), None)


UNARY = [name for name, op in OPS.items() if op.arity == 1 and op.rule in ("float", "signed", "same")]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["fp32", "fp64", "fp16"])
def test_zeros_keep_the_sign_that_libm_gives(dtype: str, target: str) -> None:
    x = np.array([-0.0, 0.0] * 9 + [-0.0], numpy_dtype(DType(dtype)))
    g = tt.Graph("zeros")
    a, c = g.input("x", x.shape, DType(dtype)), g.constant(x)
    names = (
        [n for n in UNARY if hasattr(a, n) or n in tt.frontend_operations()] if hasattr(tt, "frontend_operations") else UNARY
    )
    made = []
    for name in names:
        try:
            y, z = g.op(name, a), g.op(name, c)
        except tt.TatamiError:
            continue
        made.append(name)
        g.output(name, y)
        g.output(f"{name} of a constant", z)
    got = tt.compile(g, target=target)(x=x)
    seen, wrong = 0, []
    for name in made:
        f = libm(name)
        if f is None:
            continue
        with np.errstate(all="ignore"):
            wanted = np.signbit(f(x)) | np.isnan(f(x).astype(np.float64))
            zero = f(x) == 0
        for port in (name, f"{name} of a constant"):
            have = np.asarray(got[port])
            if not (np.signbit(have) == wanted)[zero].all():
                wrong.append(f"{port}: {have[:2]} of {x[:2]}")
        seen += 1
    assert not wrong, ", ".join(wrong)
    assert seen > 15
