"""Codes, scales and ranges against the plain definition."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.quantization.ranges import entropy_threshold, percentile_range
from tatami.quantization.rounding import affine, lost, rounded
from tests.quantization.models import numbers


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("depth", "block"), [(64, 32), (50, 32), (7, 16), (40, 0), (1, 32)])
def test_no_weight_is_further_than_half_a_scale(bits: int, depth: int, block: int) -> None:
    """The side of 4 bits that ends at 7 is an exception: one scale at most."""
    weights = numbers(depth, 9)
    found = rounded(weights, bits, block)
    scales = np.repeat(np.abs(found.scales), found.block, axis=0)[:depth]
    distance = np.abs(weights - found.values()) / scales
    is_last = found.codes == 7
    assert distance[~is_last].max() <= 0.5 + 1e-4
    assert distance.max() <= 1 + 1e-4
    assert lost(weights, found) == pytest.approx(np.linalg.norm(weights - found.values()) / np.linalg.norm(weights))


def test_the_signed_extreme_loses_less_than_a_symmetric_scale() -> None:
    weights = numbers(4096, 64)
    parts = weights.reshape(-1, 32, 64)
    scales = np.abs(parts).max(axis=1, keepdims=True) / 7
    symmetric = np.linalg.norm(parts - np.rint(parts / scales) * scales) / np.linalg.norm(weights)
    assert lost(weights, rounded(weights, 4, 32)) < 0.95 * symmetric


def test_zero_is_exact_in_every_range() -> None:
    for low, high in ((-1, 4), (0.5, 2), (-3, -1), (0, 0), (-1e-30, 1e30), (1e-45, 1e-45)):
        scale, zero = affine(low, high)
        assert scale > 0
        assert 0 <= int(zero) <= 255
        assert (0 - int(zero)) * scale <= min(low, 0) + scale
        assert (255 - int(zero)) * scale >= max(high, 0) - scale * 1.01


def test_a_percentile_leaves_out_outliers() -> None:
    values = np.concatenate([np.random.default_rng(0).uniform(-1, 1, 100_000), [50.0]])
    counts = np.histogram(values, 2048, (-1, 50))[0]
    low, high = percentile_range(counts, (-1.0, 50.0), 99.9)
    assert low == pytest.approx(-1, abs=0.05)
    assert high == pytest.approx(1, abs=0.05)
    assert percentile_range(counts, (-1.0, 50.0), 100.0) == (-1.0, 50.0)


def test_entropy_cuts_a_long_tail_and_no_even_one() -> None:
    rng = np.random.default_rng(0)
    even = np.histogram(rng.uniform(0, 1, 1_000_000), 2048, (0, 1))[0]
    assert entropy_threshold(even, 1.0) > 0.9
    tail = np.concatenate([np.abs(rng.standard_normal(1_000_000)), [40.0]])
    counts = np.histogram(tail, 2048, (0, 40))[0]
    assert 2.4 < entropy_threshold(counts, 40.0) < 8
    assert entropy_threshold(np.zeros(2048, np.int64), 3.0) == 3.0
