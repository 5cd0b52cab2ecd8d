"""Text of a run of the grid, and the page docs/onnx-grid.md."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.onnx.grid.cases import Case
from tests.onnx.grid.known import DISAGREEMENTS, FAILING, Known, known_of
from tests.onnx.grid.run import OUTCOMES, Verdict

PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx-grid.md"
SEED = 26
"""Order of the cases before they are shared out."""
_INTRODUCTION = """# The grid of ONNX operators

`python -m tests.onnx.grid` runs a small model for each point of a grid: every operator of the default ONNX domain in each of
its versions, and around a plain case of it each value of each enumerated attribute, each optional operand left out, sizes of
0, 1 and of the window, rank 0, each dtype that the version allows, special values (NaN, infinities, both zeros, denormals,
integer extremes) and operands at the limits of what their dtype accumulates. Versions, attributes, operands and dtypes come
from the operators' schemas; the rest is a table (`tests/onnx/grid/rows_*.py`).

Each result is compared with ONNX's reference evaluator and with ONNX Runtime without graph optimisations: dtype and shape,
integers exactly, floats within a tolerance, NaN and infinities in the same places. Where the two differ, the operator's text
decides; the tables below say which one is followed, and why. A pattern of cases is matched as a file name is.

    python -m tests.onnx.grid --op Resize        one operator
    python -m tests.onnx.grid --share 3/40       one of forty parts, drawn by a fixed seed
    python -m tests.onnx.grid --list             the names of the cases
    python -m tests.onnx.grid --write            the whole grid, and this page
"""
_RUN = "## The last run of the whole grid\n"
_TABLES = "## Where the oracles differ"
_FOLLOWED = {"reference": "reference evaluator", "onnxruntime": "ONNX Runtime", "text": "the text"}


def share_of(cases: Sequence[Case], share: str) -> list[Case]:
    """The Kth of N parts of the cases in an order that a seed decides; parts are equal to within one case."""
    part, parts = (int(v) for v in share.split("/"))
    if not 1 <= part <= parts:
        raise SystemExit(f"--share {share}: K has to be from 1 to N")
    order = sorted(cases, key=lambda c: c.name)
    random.Random(SEED).shuffle(order)
    return sorted(order[part - 1 :: parts], key=lambda c: (c.op, c.version, c.label))


def unexpected(done: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts that are not success and that nothing in the table of known failures says."""
    return [v for v in done if v.outcome not in ("right", "not told") and known_of(v.case, FAILING) is None]


def summary(done: Sequence[Verdict]) -> str:
    counts = Counter(v.outcome for v in done)
    known = sum(v.outcome not in ("right", "not told") for v in done) - len(unexpected(done))
    words = ", ".join(f"{counts[o]} {o}" for o in OUTCOMES if counts[o])
    return f"{len(done)} cases: {words}; {known} of them known to fail"


def tables() -> str:
    """Tables of known disagreements and failures, for the page."""
    lines = [f"{_TABLES}\n", "| operators | versions | cases | followed | why |", "|---|---|---|---|---|"]
    lines += [f"| {_ops(d)} | {_versions(d)} | `{_cell(d.labels)}` | {_FOLLOWED[d.follows]} | {d.why} |" for d in DISAGREEMENTS]
    lines += ["", "## Cases that fail\n", "| operators | versions | cases | why |", "|---|---|---|---|"]
    lines += [f"| {_ops(k)} | {_versions(k)} | `{_cell(k.labels)}` | {k.why} |" for k in FAILING]
    return "\n".join(lines) + "\n"


def write_page(done: Sequence[Verdict]) -> None:
    operators = len({v.case.op for v in done})
    run = f"{_RUN}\n{operators} operators, {summary(done)}.\n"
    PAGE.write_text(f"{_INTRODUCTION}\n{run}\n{tables()}")


def write_tables() -> None:
    """The tables of the page as they are now; the counts of the last run stay."""
    before = PAGE.read_text().partition(_TABLES)[0] if PAGE.exists() else f"{_INTRODUCTION}\n"
    PAGE.write_text(before + tables())


def _ops(k: Known) -> str:
    return ", ".join(k.ops.split("|"))


def _versions(k: Known) -> str:
    first, last = k.versions
    return "all" if k.versions == (1, 1000) else f"{first}-{last}" if last < 1000 else f"from {first}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
