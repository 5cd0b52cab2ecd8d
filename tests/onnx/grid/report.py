"""Text of a run of the grid, and the page docs/onnx-grid.md."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.onnx.grid.cases import Case
from tests.onnx.grid.run import OUTCOMES, Verdict

PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx-grid.md"
SEED = 26


def share_of(cases: Sequence[Case], share: str) -> list[Case]:
    """The Kth of N parts of the cases in an order that a seed decides; parts are equal to within one case."""
    part, parts = (int(v) for v in share.split("/"))
    if not 1 <= part <= parts:
        raise SystemExit(f"--share {share}: K has to be from 1 to N")
    order = sorted(cases, key=lambda c: c.name)
    random.Random(SEED).shuffle(order)
    return sorted(order[part - 1 :: parts], key=lambda c: (c.op, c.version, c.label))


def summary(done: Sequence[Verdict]) -> str:
    counts = Counter(v.outcome for v in done)
    return f"{len(done)} cases: " + ", ".join(f"{counts[o]} {o}" for o in OUTCOMES if counts[o])


def write_page(done: Sequence[Verdict]) -> None:
    PAGE.write_text(summary(done) + "\n")
