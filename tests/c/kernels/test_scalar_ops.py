"""C of every scalar op and cast against core.numerics, on every dtype it takes, one lane and many."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.numbers import numerics
from tatami.core.ops import OPS, result_dtype
from tatami.core.tensor import numpy_dtype
from tatami.region.ir import Binary, Cast, Read, Region, RegionExpr, Select, Unary, Yield
from tests.loop.compiled import run_kernel
from tests.loop.zoo import let, region, tensor

D = DType
N = var("N")
ALL = [d for d in DType if d != D.unknown and not d.is_small]
WIDTHS = ["scalar", "generic", "avx2", "avx512"]


def samples(d: DType, seed: int = 0, n: int = 403) -> np.ndarray:
    """Special values first, then random ones of all magnitudes."""
    rng = np.random.default_rng(seed)
    if d == D.bool:
        return rng.integers(0, 2, n).astype(np.bool_)
    t = numpy_dtype(d)
    if d.is_float:
        special = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 2, 3, np.inf, -np.inf, np.nan, 1e-3, -7.25, 127.5, 254.7, 300.0]
        special += [-129.0, 65504.0, 65520.0, 7e4, 1e-6, 6e-8, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e20]
        special += [2147483520.0, 8388607.5, 8388608.0, 1e30, -1e30, 3e-45]
        rest = rng.standard_normal(n) * 2.0 ** rng.integers(-20, 20, n)
        with np.errstate(all="ignore"):
            return np.concatenate([special, rest])[:n].astype(t)
    info = np.iinfo(t)
    special = [0, 1, 2, 3, 5, 7, 8, 31, 32, info.max, info.min, info.max - 1, 64, 100]
    special += [-1, -2, -3, -7] if info.min < 0 else []
    special = [s for s in special if info.min <= s <= info.max]
    small = rng.integers(max(info.min, -9), 10, n // 2).astype(t)
    wide = rng.integers(info.min, info.max, n, dtype=t, endpoint=True)
    return np.concatenate([np.array(special, t), small, wide])[:n]


def many(exprs: dict[str, tuple[RegionExpr, DType]], inputs: dict[str, DType]) -> Region:
    lets = [let(f"l_{k}", "i0", e, d) for k, (e, d) in exprs.items()]
    return region(
        {"i0": N},
        {},
        {k: tensor(N, d=d) for k, d in inputs.items()},
        {f"y_{k}": tensor(N, d=d) for k, (_, d) in exprs.items()},
        lets,
        [Yield(f"l_{k}", f"y_{k}") for k in exprs],
    )


def same(a: np.ndarray, b: np.ndarray, what: str, ulps: int = 0) -> None:
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(a, b, err_msg=what)
        return
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y), err_msg=what)
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}[a.dtype.name]
    tiny = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}[a.dtype.name]
    with np.errstate(all="ignore"):
        bad = ~((x == y) | np.isnan(x) | (np.abs(x - y) <= ulps * np.maximum(np.abs(y) * eps, tiny)))
    assert not bad.any(), (what, np.nonzero(bad)[0][:5], x[bad][:5], y[bad][:5])


EXACT = {"neg", "abs", "sign", "relu", "max", "min", "add", "sub", "mul", "div", "recip", "sqrt", "floor", "ceil", "round"}
EXACT |= {"trunc", "tf32", "rem", "isnan", "isinf", "eq", "ne", "lt", "le", "gt", "ge"}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", ALL)
def test_ops_mean_what_numerics_says(d: DType, width: str) -> None:
    x, y = Read("x", (var("i0"),)), Read("y", (var("i0"),))
    exprs: dict[str, tuple[RegionExpr, DType]] = {}
    for op in OPS.values():
        out = result_dtype(op, (d,) * op.arity)
        if out is None or op.name == "where":
            continue
        exprs[op.name] = (Unary(op.name, x) if op.arity == 1 else Binary(op.name, x, y), out)
    a, b = samples(d, 1), np.roll(samples(d, 2), 17)
    fault, got = run_kernel(many(exprs, {"x": d, "y": d}), {"x": a, "y": b}, {"N": len(a)}, width=width)
    assert fault == 0
    for name, (_, out) in exprs.items():
        args = [a] if OPS[name].arity == 1 else [a, b]
        with np.errstate(all="ignore"):
            want = numerics.apply(name, args, out)
        same(got[f"y_{name}"], np.asarray(want), f"{name} {d} {width}", 0 if name in EXACT else 1 if out.is_narrow_float else 4)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("d", ALL)
def test_casts_mean_what_numerics_says(d: DType, width: str) -> None:
    x = Read("x", (var("i0"),))
    exprs: dict[str, tuple[RegionExpr, DType]] = {f"{to}": (Cast(x, to), to) for to in ALL}
    bits = [t for t in ALL if t.itemsize == d.itemsize and D.bool not in (t, d)]
    exprs |= {f"bits_{to}": (Cast(x, to, bits=True), to) for to in bits}
    a = samples(d, 3)
    fault, got = run_kernel(many(exprs, {"x": d}), {"x": a}, {"N": len(a)}, width=width)
    assert fault == 0
    for to in ALL:
        with np.errstate(all="ignore"):
            same(got[f"y_{to}"], numerics.cast(a, to), f"{d} to {to} {width}")
    for to in bits:
        with np.errstate(invalid="ignore"):
            kept = np.isfinite(got[f"y_bits_{to}"].astype(np.float64)) & np.isfinite(a.astype(np.float64))
        kept |= D.fp16 not in (d, to)  # a NaN of fp16 becomes a quiet one
        np.testing.assert_array_equal(
            got[f"y_bits_{to}"].view(f"u{d.itemsize}")[kept], a.view(f"u{d.itemsize}")[kept], err_msg=f"bits {d} {to}"
        )


@pytest.mark.parametrize("width", WIDTHS)
def test_every_upper_half_of_fp32_and_what_lies_between_two_as_bf16(width: str) -> None:
    upper = np.repeat(np.arange(1 << 16, dtype=np.uint32) << 16, 5)
    a = (upper | np.tile(np.array([0, 1, 0x7FFF, 0x8000, 0x8001], np.uint32), 1 << 16)).view(np.float32)
    fault, got = run_kernel(
        many({"y": (Cast(Read("x", (var("i0"),)), D.bf16), D.bf16)}, {"x": D.fp32}), {"x": a}, {"N": len(a)}, width=width
    )
    assert fault == 0
    want, bits = numerics.cast(a, D.bf16), got["y_y"].view(np.uint16)
    number = ~np.isnan(a)
    np.testing.assert_array_equal(bits[number], want.view(np.uint16)[number])
    assert np.all((bits[~number] & 0x7FC0) == 0x7FC0)  # quiet NaNs


@pytest.mark.parametrize("width", WIDTHS)
def test_every_number_of_fp16_and_what_lies_between_two(width: str) -> None:
    """The instructions of a machine that has some, and the arithmetic of one that has none."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = halves.astype(np.float32)
    with np.errstate(all="ignore"):
        between = (wide + np.nextafter(halves, np.float16(np.inf)).astype(np.float32)) / 2
        near = np.concatenate([between, *(np.nextafter(between, np.float32(end)) for end in (-np.inf, np.inf))])
        near = np.concatenate([near, np.array([65519.996, 65520, 7e4, 3e-45, 1e-38], np.float32)])
        wanted = near.astype(np.float16)
    i = (var("i0"),)
    for to, source, x, y in ((D.fp32, D.fp16, halves, wide), (D.fp16, D.fp32, near, wanted)):
        cast = many({"": (Cast(Read("x", i), to), to)}, {"x": source})
        fault, got = run_kernel(cast, {"x": x}, {"N": len(x)}, width=width)
        assert fault == 0
        np.testing.assert_array_equal(got["y_"], y)


@pytest.mark.parametrize("width", WIDTHS)
def test_select_of_every_dtype(width: str) -> None:
    i = (var("i0"),)
    exprs: dict[str, tuple[RegionExpr, DType]] = {
        f"{d}": (Select(Read("c", i), Read(f"a_{d}", i), Read(f"b_{d}", i)), d) for d in ALL
    }
    inputs = {"c": D.bool} | {f"{k}_{d}": d for d in ALL for k in "ab"}
    arrays = {k: samples(d, n, 77) for n, (k, d) in enumerate(inputs.items())}
    _, got = run_kernel(many(exprs, inputs), arrays, {"N": 77}, width=width)
    for d in ALL:
        same(got[f"y_{d}"], np.where(arrays["c"], arrays[f"a_{d}"], arrays[f"b_{d}"]).astype(numpy_dtype(d)), f"{d}")
