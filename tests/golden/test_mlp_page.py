"""The page of the golden program `mlp` names its files, and quotes what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "mlp"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
QUOTE = re.compile(r"`([^`]+)`")


def quotes() -> dict[str, list[str]]:
    """File -> the texts that the section "Follow n9" quotes from it."""
    items = re.findall(r"^- `(\d+_\S+\.txt)`: (.*)$", PAGE, re.MULTILINE)
    return {file: [text for text in QUOTE.findall(rest) if len(text) > 5] for file, rest in items}


def test_the_table_has_each_file_in_the_order_of_the_chain() -> None:
    rows = re.findall(r"^\| `(\S+\.txt)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(p.name for p in FOLDER.glob("*.txt"))
    numbers = [int(name.partition("_")[0]) for name in rows]
    assert numbers == sorted(numbers) and 10 not in numbers


def test_n9_is_in_each_stage_as_the_page_quotes_it() -> None:
    found = quotes()
    assert len(found) == len({p.name.partition("_")[0] for p in FOLDER.glob("*.txt")})
    for file, texts in found.items():
        content = (FOLDER / file).read_text(encoding="utf-8")
        missing = [text for text in texts if text not in content]
        assert texts and not missing, f"{file} does not have {missing}"


def test_what_the_page_says_of_n1_p() -> None:
    assert "pack_n1_p calls tatami_kernel2(n1, n1_p)" in (FOLDER / "9_loop.txt").read_text(encoding="utf-8")
    assert "layout blocked 1x16" in (FOLDER / "11_execution.txt").read_text(encoding="utf-8")
    assert "packed n1" in (FOLDER / "8_plan.txt").read_text(encoding="utf-8")
