"""The rule by which a difference of times counts."""

from __future__ import annotations

import numpy as np

from tatami.search.measuring.noise import CHANCE, is_faster, is_slower, spread


def test_a_clear_difference_counts() -> None:
    assert is_faster([0.9] * 24) and not is_slower([0.9] * 24)
    assert is_slower([1.01] * 24) and not is_faster([1.01] * 24)


def test_few_turns_or_little_gain_do_not_count() -> None:
    assert not is_faster([0.5] * 7) and not is_faster([0.99] * 24) and not is_faster([])


def test_single_disturbed_turns_do_not_matter() -> None:
    assert is_faster([0.9] * 20 + [50.0] * 4)


def test_noise_passes_rarely() -> None:
    rng = np.random.default_rng(0)
    passed = sum(is_faster(list(np.exp(rng.normal(0.0, 0.3, 24)))) for _ in range(4000))
    assert passed <= 4000 * CHANCE * 1.5


def test_the_spread_is_that_of_the_middle_half() -> None:
    assert spread([1.0] * 10 + [9.0]) == 0.0 and spread([1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) > 0.5
