"""fp8, fp4, int4, int2: every code and every rounding boundary through the compiled program, against ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.numbers.numerics import cast
from tatami.core.numbers.small_float import FORMATS
from tatami.core.tensor import numpy_dtype

SMALL = [d for d in DType if d.is_small]


def codes(dtype: DType) -> np.ndarray:
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(numpy_dtype(dtype))


def boundaries(dtype: DType) -> np.ndarray:
    """Every number of the type, the middles between neighbours and what lies next to these; the extremes of fp32."""
    values = codes(dtype).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(way)) for way in (np.inf, -np.inf)]
    extremes = np.array([0, -0.0, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -1e-45, 1e-7, 2.0**-127], np.float32)
    return np.concatenate([values, -values, middles, *near, extremes])


def function(source: DType, to: DType, target: str = "cpu") -> tt.Function:
    g = tt.Graph("t")
    g.output("y", g.input("x", ("N",), source).op("cast", to=to))
    return tt.compile(g, target=target, threads=1)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_every_code_becomes_its_number(dtype: DType) -> None:
    for to in (DType.fp32, DType.fp16) if not dtype.is_small_int else (DType.fp32, DType.i8 if dtype.is_signed else DType.u8):
        y = np.asarray(function(dtype, to)(x=codes(dtype))["y"])
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y, codes(dtype).astype(numpy_dtype(to)))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_every_rounding_boundary_goes_the_right_way(dtype: DType, target: str) -> None:
    x = boundaries(dtype)
    y = np.asarray(function(DType.fp32, dtype, target)(x=x)["y"])
    assert y.dtype == numpy_dtype(dtype)
    expected = cast(x, dtype)
    same = y.view(np.uint8) == expected.view(np.uint8)
    assert same.all(), list(zip(x[~same][:5], y[~same][:5], expected[~same][:5], strict=True))


@pytest.mark.parametrize("dtype", [d for d in FORMATS if d != DType.f8e8m0], ids=str)
def test_the_definition_is_that_of_ml_dtypes(dtype: DType) -> None:
    """NaN apart, which has one code here."""
    x = boundaries(dtype)
    x = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        assert np.array_equal(cast(x, dtype).view(np.uint8), x.astype(numpy_dtype(dtype)).view(np.uint8))
        finite = codes(dtype).astype(np.float32)
        assert FORMATS[dtype].maximum == finite[np.isfinite(finite)].max()


def test_small_types_are_moved_and_chosen_but_not_computed_with() -> None:
    g = tt.Graph("t")
    x = g.input("x", (2, 3), tt.f8e5m2)
    g.output("y", x.op("permute", perm=(1, 0)).op("slice", starts=(1, 0), stops=(3, 2)))
    values = np.arange(6, dtype=np.uint8).reshape(2, 3).view(numpy_dtype(DType.f8e5m2))
    y = np.asarray(tt.compile(g, threads=1)(x=values)["y"])
    assert y.dtype == values.dtype and np.array_equal(y.view(np.uint8), values.view(np.uint8).T[1:3])
    for op, others in (("add", (x,)), ("exp", ()), ("reduce_sum", ()), ("pad", ())):
        with pytest.raises(TatamiError, match="E1007"):
            x.op(op, *others, **({"pads": ((1, 1), (0, 0))} if op == "pad" else {}))


@pytest.mark.parametrize("branches", [False, True])
def test_small_types_cross_the_bounds_of_graphs(branches: bool) -> None:
    g = tt.Graph("outer")
    inner = g.subgraph("inner")
    p = inner.input("p", ("N",), tt.i4)
    inner.output("q", p.op("cast", to="i32").op("neg").op("cast", to="i4"))
    x = g.input("x", ("M",), tt.i4)
    go = g.input("go", (), tt.bool)
    g.output("y", g.cond(go, inner, inner, x) if branches else g.call(inner, x))
    values = codes(DType.i4)
    y = np.asarray(tt.compile(g, threads=1)(x=values, go=True)["y"])
    assert y.astype(np.int8).tolist() == [-v if v != -8 else -8 for v in values.astype(np.int8).tolist()]
