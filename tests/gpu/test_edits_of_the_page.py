"""The table of edits in docs/gpu-plans.md: each edit of a product's kernel has the answer that the page gives."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.storage.dump import write_dump
from tests.docs.pages import DOCS

SECTION = (DOCS / "gpu-plans.md").read_text(encoding="utf-8").partition("## Editing a kernel")[2]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if line.startswith("| ")][1:]


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the gpu stage of a product, and what it comes from."""
    g = tt.Graph("product")
    x, w = (g.input(name, (1024, 1024), tt.fp16) for name in "xw")
    g.output("y", (x @ w).relu())
    compilation = prepare(g, target="sm90")
    folder = tmp_path_factory.mktemp("dump")
    write_dump(folder, compilation.values(), ["gpu"], compilation.target)
    return folder


def loops(document: Any, role: str) -> list[Any]:
    """The statements in the loop over blocks of a role."""
    if isinstance(document, dict):
        if document.get("Role", {}).get("name") == role:
            (tiles,) = (s["Loop"]["body"] for s in document["Role"]["body"] if "Loop" in s)
            blocks: list[Any] = next(s["Loop"]["body"] for s in tiles if s.get("Loop", {}).get("over") == "blocks")
            return blocks
        document = list(document.values())
    if isinstance(document, list):
        return next((found for part in document if (found := loops(part, role))), [])
    return []


def edited(document: Any, row: int) -> Any:
    """The document with the edit of a row of the table."""
    out = copy.deepcopy(document)
    producer, consumer = loops(out, "producer"), loops(out, "consumer")
    match row:
        case 0:
            a, b = (i for i, s in enumerate(producer) if "TmaLoad" in s)
            producer[a], producer[b] = producer[b], producer[a]
        case 1:
            (wait,) = (s["Wait"] for s in consumer if s.get("Wait", {}).get("model") == "wgmma_group")
            assert wait["pending"] == 1
            wait["pending"] = 0
        case 2:
            assert "Wait" in consumer[0]
            del consumer[0]
        case 3:
            assert "Wait" in consumer[2] and "MBarrierArrive" in consumer[3]
            consumer[2], consumer[3] = consumer[3], consumer[2]
        case _:
            out["programs"]["main"]["kernels"][0]["tile"] = [128, 256, 64]
    return out


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_each_edit_has_the_answer_of_the_page(row: int, dump: Path) -> None:
    what, answer = ROWS[row]
    path = dump / "10_gpu.json"
    own = path.read_text(encoding="utf-8")
    changed = edited(json.loads(own), row)
    assert changed != json.loads(own), what
    try:
        path.write_text(json.dumps(changed), encoding="utf-8")
        if answer == "compiled":
            assert prepare(path).stages["cu"] is not None
        else:
            with pytest.raises(TatamiError, match=answer.partition(":")[0]):
                _ = prepare(path).stages["cu"]
    finally:
        path.write_text(own, encoding="utf-8")


def test_the_table_has_an_edit_for_each_row() -> None:
    assert len(ROWS) == 5
