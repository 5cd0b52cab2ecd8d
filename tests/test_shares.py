"""A share of a grid holds every pair of values, and the whole grid is there when it is asked for."""

from __future__ import annotations

import itertools

import pytest

from tests.shares import share

FACTORS = ("abc", "defg", "hijk", "lm")


def test_every_pair_of_values_is_in_a_share() -> None:
    rows = share(*FACTORS, of=4)
    assert len(rows) == 24 and len(set(rows)) == 24
    for one, other in itertools.combinations(FACTORS, 2):
        assert all(any({a, b} <= set(row) for row in rows) for a, b in itertools.product(one, other))


def test_the_whole_grid_is_taken_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_TESTS_WHOLE", "1")
    assert share(*FACTORS, of=4) == list(itertools.product(*FACTORS))
