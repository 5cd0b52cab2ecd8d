"""Shares of exhaustive grids and slow tests: a run of the tests takes some rows of each grid and no slow test,
TATAMI_TESTS_WHOLE=1 all of them. Tests named by their ids run, whatever their share."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

GRIDS = {
    "tests/loop/images/": 3,
    "tests/loop/nests/": 2,
    "tests/loop/products/": 2,
    "tests/loop/attention/": 2,
    "tests/c/kernels/": 2,
    "tests/c/products/": 2,
    "tests/chain/": 2,
    "tests/cu/pairs/": 3,
    "tests/cu/products/": 3,
    "tests/cu/every_choice/": 2,
    "tests/emulated/": 2,
    "tests/frontend/rewrites/": 2,
    "tests/onnx/microsoft/": 2,
    "tests/onnx/ml/": 2,
}
"""Folder -> n: a run takes one in n of the parameters of each test there, and at least one. Each of these rows compiles and runs
kernels, and one that fails alone is rare."""


def left_out(nodeids: Iterable[str]) -> set[str]:
    """Tests of GRIDS that a run leaves out. The names decide, so that a row is in every run or in none."""
    rows: dict[str, list[str]] = {}
    for nodeid in nodeids:
        test, bracket, _ = nodeid.partition("[")
        if bracket:
            rows.setdefault(test, []).append(nodeid)
    out: set[str] = set()
    for test, ids in rows.items():
        n = next((n for folder, n in GRIDS.items() if test.startswith(folder)), 1)
        order = sorted(ids, key=lambda nodeid: zlib.crc32(nodeid.encode()))
        out.update(order[-(-len(order) // n) :])
    return out


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
