"""The examples in docstrings: what they show is what happens."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import tatami

PACKAGE = Path(tatami.__file__).parent
WITH_EXAMPLES = sorted(p for p in PACKAGE.rglob("*.py") if ">>> " in p.read_text())


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) >= 10


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_an_example_is_true(path: Path) -> None:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    found = doctest.testmod(import_module(".".join(p for p in parts if p != "__init__")))
    assert found.attempted > 0 and found.failed == 0
