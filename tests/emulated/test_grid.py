"""A sample of the grid (`grid.py`) that has every pair of choices for products, and the record of all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.emulated.grid import KINDS, Point, difference, points, prepared, texts_hash, tile_of
from tests.pairwise import covering, pairs_of

RECORD: dict[str, str] = json.loads((Path(__file__).parent / "grid.json").read_text())
STALE = (
    "was recorded with other kernels: `python -m tests.emulated.grid --record tests/emulated/grid.json` runs such points again"
)


def choices(p: Point) -> dict[str, str]:
    return {"kind": p.kind, "dtype": str(p.dtype), "order": p.order, "epilogue": p.epilogue, "target": p.target}


def sample(every: list[Point]) -> list[Point]:
    """Points that have every pair of choices which stands in `every`."""
    pairs = dict.fromkeys(pair for p in every for pair in sorted(pairs_of(choices(p)), key=sorted))
    return covering(pairs, lambda pair, open_: [p for p in every if pair in pairs_of(choices(p))], choices)[0]


SAMPLE = sample([p for p in points() if p.kind in ("product", "batched", "large", "tf32")])


@pytest.mark.parametrize("p", SAMPLE, ids=lambda p: p.name)
def test_products_agree_at_every_tail(p: Point) -> None:
    """Results agree. Kernels that differ from the record are an expected failure: this point agrees, and the points
    that do not run here need the command."""
    compilation = prepared(p)
    assert difference(compilation, KINDS[p.kind].tails(tile_of(compilation), p.order)) == ""
    if texts_hash(compilation) != RECORD[p.name]:
        pytest.xfail(f"{p.name} {STALE}")


ELSEWHERE = ("groups", "conv", "attention", "chain", "softmax", "running", "turned", "gather", "scatter", "sort")


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_the_record_of_a_kind_is_of_todays_kernels(kind: str) -> None:
    """Only the kernels of the first point are compared; nothing runs."""
    p = next(p for p in points() if p.kind == kind)
    if texts_hash(prepared(p)) != RECORD[p.name]:
        pytest.xfail(f"{p.name} {STALE}")


def test_the_record_has_every_point() -> None:
    """Each agreed when it was recorded."""
    assert set(RECORD) == {p.name for p in points()}
