"""`--parts` sums up the seconds of each folder."""

from __future__ import annotations

import pytest

from tests.parts import parts


def report(nodeid: str, when: str, duration: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, (nodeid, 0, nodeid), {}, "passed", None, when, duration=duration)  # type: ignore[arg-type]


def test_all_phases_count_as_seconds_and_each_test_once() -> None:
    reports = [report(f"tests/c/test_a.py::{t}", when, 0.5) for t in ("x", "y[a/b]") for when in ("setup", "call", "teardown")]
    reports += [report("tests/region/views/test_b.py::z", "setup", 4.0), report("tests/test_c.py::w", "setup", 0.25)]
    assert parts(reports) == [("tests/region", 1, 4.0), ("tests/c", 2, 3.0), ("tests", 1, 0.25)]
