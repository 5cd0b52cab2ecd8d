"""The choice of a token: options, seeds, frequencies; `test_as_transformers.py` compares probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.generation.sampling import Sampling, choose, probabilities

LOGITS = np.random.default_rng(5).standard_normal(50).astype(np.float32) * 3


def test_temperature_0_is_the_first_of_the_largest() -> None:
    assert choose(np.array([1, 3, 3, 2], np.float32), (), Sampling(), np.random.default_rng()) == 1


def test_a_penalty_moves_tokens_that_occurred() -> None:
    logits = np.array([-1.0, 3.0, 2.0], np.float32)
    random = np.random.default_rng()
    assert choose(logits, (1, 1), Sampling(repetition_penalty=2.0), random) == 2
    assert choose(-logits, (0,), Sampling(repetition_penalty=1e3), random) == 0
    assert choose(np.array([-1.0, -1.5], np.float32), (0,), Sampling(repetition_penalty=2.0), random) == 1


def test_draws_have_their_probabilities() -> None:
    how = Sampling(temperature=0.8, top_p=0.9)
    random = np.random.default_rng(1)
    counts = np.bincount([choose(LOGITS, (), how, random) for _ in range(4000)], minlength=50) / 4000
    want = probabilities(LOGITS.astype(np.float64), how)
    assert np.abs(counts - want).max() < 0.03
    assert not counts[want == 0].any()


def test_a_seed_repeats_its_draws() -> None:
    how = Sampling(temperature=1.5)
    drawn = [[choose(LOGITS, (), how, random) for _ in range(30)] for random in map(np.random.default_rng, (7, 7, 8))]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    "how", [Sampling(temperature=1.0, top_k=1), Sampling(temperature=1.0, top_p=1e-9), Sampling(temperature=1.0, min_p=1.0)]
)
def test_the_narrowest_options_leave_the_most_likely(how: Sampling) -> None:
    assert choose(LOGITS, (), how, np.random.default_rng(3)) == LOGITS.argmax()


def test_the_least_temperature_is_no_overflow() -> None:
    for least in (1e-300, 1e-310, 5e-324):
        found = probabilities(LOGITS.astype(np.float64), Sampling(temperature=least, top_p=0.5))
        assert found[LOGITS.argmax()] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_one_diagnostic(value: float, temperature: float) -> None:
    with pytest.raises(TatamiError, match="E1805 HostFault at logits"):
        choose(np.array([1, value], np.float32), (), Sampling(temperature=temperature), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.1), ("min_p", -1.0), ("min_p", 2.0), ("repetition_penalty", 0.0), ("seed", -1), ("seed", 1 << 64), ("repetition_penalty", 1e-320), ("top_k", "a"), ("top_k", 2.5), ("seed", 1.5), ("temperature", None), ("temperature", True), ("top_k", True)],
)  # fmt: skip
def test_a_value_out_of_range_is_one_diagnostic(name: str, value: Any) -> None:
    with pytest.raises(TatamiError, match=f"E1009 InvalidAttribute at {name}"):
        Sampling(**{name: value})
