"""Powers and angles of zeros, infinities, NaN, whole and other numbers of both signs, as numpy has them in double precision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tatami as tt
from tests.loop.compiled import has_flags

NUMBERS = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 7.0, 8.0, 1e-45, 1e-40, 1e-30, 1e30, 3.4e38, 16777216.0, 16777215.0, 8388609.5, np.inf]
SIGNED = np.array([*NUMBERS, *(-x for x in NUMBERS), np.nan], np.float32)


@pytest.mark.parametrize("target", ["cpu:avx512", "cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize("fn", ["pow", "atan2"])
def test_pairs_of_special_numbers(fn: str, target: str) -> None:
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(f"this machine has no {target}")
    x, y = np.array(list(itertools.product(SIGNED, SIGNED)), np.float32).T
    g = tt.Graph("pairs")
    a, b = (g.input(n, x.shape, tt.fp32) for n in "ab")
    g.output("y", a.one(fn, b))
    got = tt.compile(g, target=target)({"a": x, "b": y})["y"]
    with np.errstate(all="ignore"):
        wanted = {"pow": np.power, "atan2": np.arctan2}[fn](x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))
    np.testing.assert_allclose(got, wanted, rtol=2e-7, atol=2e-45)
