"""Shares of exhaustive grids and slow tests: a run of the tests takes some rows of each grid and no slow test,
TATAMI_TESTS_WHOLE=1 all of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import pytest


def is_whole() -> bool:
    """True if TATAMI_TESTS_WHOLE=1: tests take every row of every grid."""
    return os.environ.get("TATAMI_TESTS_WHOLE") == "1"


slow = pytest.mark.skipif(not is_whole(), reason="slow and rarely fails: runs with TATAMI_TESTS_WHOLE=1")
"""Mark of a test, or of a row of its parameters, that a run of the tests leaves out."""


def share(*factors: Sequence[Any], of: int) -> list[tuple[Any, ...]]:
    """Rows of the product of the factors whose places in their factors add up to a multiple of `of`: one in `of`.

    Any two values of two factors meet in a row if the places of the other factors add up to every rest of `of`.
    """
    places = itertools.product(*(range(len(f)) for f in factors))
    return [tuple(f[p] for f, p in zip(factors, row)) for row in places if is_whole() or sum(row) % of == 0]
