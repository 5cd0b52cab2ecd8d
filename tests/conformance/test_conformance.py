"""A fixed tenth of ONNX's node cases on the compiled CPU target; the whole suite is `python -m tests.conformance.run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.conformance.cases import TOTAL, VERSION, load_cases, run_case

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())
MOST_FAILING = 290
"""The list of expected failures may only shrink: lower this number with it."""
pytestmark = pytest.mark.skipif(onnx.__version__ != VERSION, reason=f"the cases are those of onnx {VERSION}")


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return load_cases()


def test_the_suite_is_the_one_the_score_speaks_of(cases: list[Any]) -> None:
    assert len(cases) == TOTAL == EXPECTED["total"]
    assert set(EXPECTED["failing"]) <= {c.name for c in cases}


def test_the_expected_failures_have_reasons_and_do_not_grow() -> None:
    assert all(EXPECTED["failing"].values())
    assert len(EXPECTED["failing"]) <= MOST_FAILING


@pytest.mark.parametrize("part", range(10))
def test_a_tenth_of_the_node_cases(cases: list[Any], part: int) -> None:
    """Each part is every hundredth case. Failures are those that are expected, and no other."""
    wrong = {}
    for case in cases[part * 10 :: 100]:
        outcome = run_case(case)
        if not outcome.passed and case.name not in EXPECTED["failing"]:
            wrong[case.name] = outcome.reason
    assert not wrong
