"""A share of a grid holds every pair of values, and the whole grid is there when it is asked for."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.shares import GRIDS, left_out, share

FACTORS = ("abc", "defg", "hijk", "lm")


def test_every_pair_of_values_is_in_a_share() -> None:
    rows = share(*FACTORS, of=4)
    assert len(rows) == 24 and len(set(rows)) == 24
    for one, other in itertools.combinations(FACTORS, 2):
        assert all(any({a, b} <= set(row) for row in rows) for a, b in itertools.product(one, other))


def test_the_whole_grid_is_taken_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_TESTS_WHOLE", "1")
    assert share(*FACTORS, of=4) == list(itertools.product(*FACTORS))


def test_a_run_leaves_out_rows_of_grids_but_no_test() -> None:
    folder, n = next(iter(GRIDS.items()))
    rows = [f"{folder}test_a.py::test_b[{k}]" for k in range(10)]
    others = [
        f"{folder}test_a.py::test_c",
        f"{folder}test_a.py::test_d[x]",
        *(f"tests/core/test_e.py::test_f[{k}]" for k in range(9)),
    ]
    out = left_out([*others, *rows])
    assert out < set(rows) and len(out) == 10 - -(-10 // n)
    assert out == left_out([*reversed(rows), *others])


def test_every_folder_of_grids_is_there() -> None:
    root = Path(__file__).parents[1]
    assert [folder for folder in GRIDS if not (root / folder).is_dir()] == []
