"""Functions of fp32 are within two units in the last place, everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tests.c.kernels.ulp import ALL, FUNCTIONS, SAMPLE, TARGETS, measure, ulps
from tests.loop.compiled import has_flags


@pytest.mark.parametrize("target", TARGETS)
def test_functions_are_within_two_units_in_the_last_place(target: str) -> None:
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(target)
    found = measure(ALL, target, SAMPLE)
    assert {name: (w.ulps, w.at) for name, w in found.items() if not 0 < w.ulps <= 2} == {}


@pytest.mark.parametrize("name", ["tanh", "erf"])
@pytest.mark.parametrize("target", TARGETS)
def test_no_part_of_a_function_lies_high_or_low(target: str, name: str) -> None:
    """Errors that go one way all over an interval stay in sums of many results, where others cancel."""
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(target)
    g = tt.Graph("g")
    g.output("y", getattr(g.input("x", ("N",), tt.fp32), name)())
    f = tt.compile(g, target=target)
    x = np.linspace(0.3, 3.0, 1 << 16, dtype=np.float32)
    error = f(x=x)["y"] - FUNCTIONS[name](x.astype(np.float64))
    assert np.abs(error.reshape(64, -1).mean(1)).max() <= 2.0**-24 / 3
    ends = np.array([np.inf, -np.inf, 30.0, -1e30], np.float32)
    assert list(f(x=ends)["y"]) == [1.0, -1.0, 1.0, -1.0]


@pytest.mark.parametrize(("name", "width", "count"), [("erf", 0.23, 16), ("tanh", 0.2, 32)])
@pytest.mark.parametrize("target", TARGETS)
def test_every_number_at_the_joins_of_a_table(target: str, name: str, width: float, count: int) -> None:
    """erf of 0.115, the one number halfway between the first two entries, was 0.014: the entry of 0 without the number itself."""
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(target)
    g = tt.Graph("g")
    g.output("y", getattr(g.input("x", ("N",), tt.fp32), name)())
    joins = (np.arange(count) * width + width / 2).astype(np.float32).view(np.int32)
    x = (joins[:, None] + np.arange(-200, 200, dtype=np.int32)).reshape(-1).view(np.float32)
    x = np.concatenate([x, -x])
    errors = ulps(tt.compile(g, target=target)(x=x)["y"], FUNCTIONS[name](x.astype(np.float64)))
    assert errors.max() <= 2, x[errors.argmax()]


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_lane_has_its_own_bits_beside_a_number_that_is_reduced_otherwise(name: str) -> None:
    g = tt.Graph("g")
    g.output("y", getattr(g.input("x", ("N",), tt.fp32), name)())
    f = tt.compile(g)
    near = np.linspace(-40, 40, 1 << 12, dtype=np.float32)
    x = np.stack([near, np.geomspace(1e5, 3e38, 1 << 12).astype(np.float32)], 1).reshape(-1)
    assert (f(x=x)["y"][::2] == f(x=near)["y"]).all()
    zeros = f(x=np.array([0.0, -0.0] * 8, np.float32))["y"]
    assert list(np.signbit(zeros)) == ([False, True] if name == "sin" else [False, False]) * 8


@pytest.mark.parametrize("name", ["log", "log2"])
def test_a_logarithm_has_its_own_bits_beside_what_has_none(name: str) -> None:
    g = tt.Graph("g")
    g.output("y", getattr(g.input("x", ("N",), tt.fp32), name)())
    f = tt.compile(g)
    near = np.geomspace(1e-37, 1e38, 1 << 10, dtype=np.float32)
    odd = np.tile(np.array([0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40], np.float32), near.size // 8)
    y = f(x=np.stack([near, odd], 1).reshape(-1))["y"]
    assert (y[::2] == f(x=near)["y"]).all()
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(y[1:17:2], FUNCTIONS[name](odd[:8].astype(np.float64)), rtol=1e-6)
    powers = f(x=np.exp2(np.arange(-126, 128)).astype(np.float32))["y"]
    assert name == "log" or (powers == np.arange(-126, 128)).all()


def test_an_error_is_counted_in_units_of_the_exact_value() -> None:
    one = np.float32(1)
    got = np.array([one, np.nextafter(one, 2 * one), np.inf, np.nan, 0.0, np.inf], np.float32)
    want = np.array([1.0, 1.0, 2.0**128 - 2.0**103, np.nan, 2.0**-150, 1.0])
    assert list(ulps(got, want)[:5]) == [0.0, 1.0, 0.5, 0.0, 0.5]
    assert ulps(got, want)[5] > 1e9
    assert np.isinf(ulps(np.array([np.nan], np.float32), np.array([1.0])))
