"""`docs/rows-*.md`: every row of the specification once, with a legal verdict and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = {"graph": ("G", 49), "tiny": ("T", 24), "compiler": ("C", 95), "plan": ("E", 10), "matmul": ("M", 21)}
VERDICTS = {"works", "works (cpu)", "partly", "missing"}
LATER = (
    "The computation graph, complete, and the .harp language",
    "ONNX and PyTorch",
    "CPU speed",
    "GPU foundations (emulated targets, SM80, streaming, CUDA runtime)",
    "Hopper",
)


def rows(part: str) -> list[list[str]]:
    path = ROOT / "docs" / f"rows-{part}.md"
    if not path.exists():
        pytest.skip(f"{path.name} is not written yet")
    lines = [line.replace("\\|", "\0") for line in path.read_text(encoding="utf-8").splitlines()]
    table = [[c.strip().replace("\0", "|") for c in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [r for r in table if re.fullmatch(r"[GTCEM]-\d+", r[0])]


@pytest.mark.parametrize("part", PARTS)
def test_every_row_stands_once(part: str) -> None:
    letter, count = PARTS[part]
    assert [r[0] for r in rows(part)] == [f"{letter}-{k:02}" for k in range(1, count + 1)]


@pytest.mark.parametrize("part", PARTS)
def test_a_row_has_a_verdict_and_what_shows_it(part: str) -> None:
    for row in rows(part):
        assert len(row) == 5, row[0]
        id, what, verdict, check, note = row
        assert what and verdict in VERDICTS, id
        if verdict.startswith("works"):
            assert check, id
        else:
            assert any(title in note for title in LATER), id


@pytest.mark.parametrize("part", PARTS)
def test_cited_tests_exist(part: str) -> None:
    for row in rows(part):
        for file, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", row[3]):
            path = ROOT / file
            assert path.exists(), (row[0], file)
            assert not name or f"def {name}(" in path.read_text(encoding="utf-8"), (row[0], file, name)


def test_the_summary_counts_the_tables() -> None:
    page = (ROOT / "docs" / "rows.md").read_text(encoding="utf-8")
    totals = [0] * 5
    for part in PARTS:
        verdicts = [r[2] for r in rows(part)]
        counts = [len(verdicts), *(verdicts.count(v) for v in ("works", "works (cpu)", "partly", "missing"))]
        totals = [a + b for a, b in zip(totals, counts)]
        assert f"(rows-{part}.md) | {' | '.join(map(str, counts))} |" in page, part
    assert f"| all | {' | '.join(map(str, totals))} |" in page
