"""Powers, angles and remainders of zeros, infinities, NaN, whole and other numbers of both signs, as in numpy in double precision."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import tatami as tt
from tests.loop.compiled import has_flags

NUMBERS = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 7.0, 8.0, 1e-45, 1e-40, 1e-30, 1e30, 3.4e38, 16777216.0, 16777215.0, 8388609.5, np.inf]
SIGNED = np.array([*NUMBERS, *(-x for x in NUMBERS), np.nan], np.float32)


def divisors_sign(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The remainder with the sign of y, in single precision where it is added."""
    r = np.fmod(x, y).astype(np.float32)
    return np.where(r == 0, np.copysign(np.float32(0), y), np.where((r < 0) != (y < 0), r + y.astype(np.float32), r))


@pytest.mark.parametrize("target", ["cpu:avx512", "cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize("fn", ["pow", "atan2", "rem", "mod"])
def test_pairs_of_special_numbers(fn: str, target: str) -> None:
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(f"this machine has no {target}")
    x, y = np.array(list(itertools.product(SIGNED, SIGNED)), np.float32).T
    g = tt.Graph("pairs")
    a, b = (g.input(n, x.shape, tt.fp32) for n in "ab")
    g.output("y", a.one(fn, b))
    got = tt.compile(g, target=target)({"a": x, "b": y})["y"]
    with np.errstate(all="ignore"):
        pairs: dict[str, Callable[..., np.ndarray]] = {
            "pow": np.power,
            "atan2": np.arctan2,
            "rem": np.fmod,
            "mod": divisors_sign,
        }
        wanted = pairs[fn](x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))
    np.testing.assert_allclose(got, wanted, rtol=2e-7, atol=2e-45)


@pytest.mark.parametrize("target", ["cpu:avx512", "cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize("fn", ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"])
def test_special_numbers(fn: str, target: str) -> None:
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(f"this machine has no {target}")
    x = np.concatenate([SIGNED, np.array([0.25, 0.999, -0.999, 0.015625, -0.0156, 88.7, 89.5, -89.5, 1.0000001], np.float32)])
    g = tt.Graph("one")
    g.output("y", g.input("x", x.shape, tt.fp32).one(fn))
    got = tt.compile(g, target=target)({"x": x})["y"]
    name = fn.replace("a", "arc", 1) if fn[0] == "a" else fn
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))
    np.testing.assert_allclose(got, wanted, rtol=2e-7, atol=2e-45)
