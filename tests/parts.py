"""Tests and seconds of each folder of the suite, printed at the end of a run with `--parts`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest


def part_of(nodeid: str) -> str:
    """The folder under `tests` that a test stands in."""
    folders = nodeid.partition("::")[0].split("/")[:-1]
    return "/".join(folders[:2])


def parts(reports: Iterable[pytest.TestReport]) -> list[tuple[str, int, float]]:
    """Folder, tests, seconds of their setup, call and teardown; the longest first."""
    tests: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        tests[part_of(report.nodeid)] += report.when == "setup"
        seconds[part_of(report.nodeid)] += report.duration
    return sorted(((part, tests[part], seconds[part]) for part in tests), key=lambda row: (-row[2], row[0]))
