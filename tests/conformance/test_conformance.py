"""A fixed tenth of ONNX's node cases through the backend; the whole suite is `python -m tests.conformance.run`."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.conformance.cases import TOTALS, VERSION, Case, load_cases, run_case

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())
MOST_FAILING = 25
"""The list of expected failures may only shrink: lower this number with it."""
pytestmark = [
    pytest.mark.skipif(onnx.__version__ != VERSION, reason=f"the cases are those of onnx {VERSION}"),
    pytest.mark.xdist_group("conformance"),  # making the cases takes long: once, by one process
]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return load_cases()


def test_the_suite_is_the_one_the_score_speaks_of(cases: list[Case]) -> None:
    assert {g: sum(c.group == g for c in cases) for g in TOTALS} == TOTALS == EXPECTED["totals"]
    assert set(EXPECTED["failing"]) <= {f"{c.group}/{c.name}" for c in cases}


def test_the_expected_failures_have_reasons_and_do_not_grow() -> None:
    assert all(EXPECTED["failing"].values())
    assert len(EXPECTED["failing"]) <= MOST_FAILING


@pytest.mark.parametrize("part", range(10))
def test_a_tenth_of_the_cases(cases: list[Case], part: int) -> None:
    """Each part is every hundredth case. Failures are those that are expected, and no other."""
    wrong = {}
    for case in [c for c in cases if c.group != "real"][part * 10 :: 100]:
        outcome = run_case(case)
        if not outcome.passed and f"{case.group}/{case.name}" not in EXPECTED["failing"]:
            wrong[case.name] = outcome.reason
    assert not wrong
