"""The chapters of docs/tutorial, and the guides, run: what they show is what happens (tests/docs/chapters.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.chapters import run_chapter

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))
GUIDES = {"torch-compile": "torch", "quantised": "onnx", "slow-kernel": "numpy", "looking-inside": "numpy"}
"""Guide in docs -> the package without which it is skipped."""


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export warns about its own code
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(GUIDES[name])
    monkeypatch.setenv("TATAMI_LEDGER", str(tmp_path / "ledger.sqlite"))
    if GUIDES[name] == "torch":
        from tatami import backends

        backends.reset()  # the guide prints a report of its own graphs
    assert faults(ROOT / "docs" / f"{name}.md", tmp_path) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_chapter_runs(path: Path, tmp_path: Path) -> None:
    assert faults(path, tmp_path) == []


def faults(path: Path, folder: Path) -> list[str]:
    ran = run_chapter(path, folder, ROOT / "examples")
    assert len(ran) >= 2
    return [fault for block in ran for fault in block.faults]


def test_a_page_that_lies_is_found_and_shows_what_was_printed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```harp\n// twice.harp\ngraph main(x: f32[2]) -> f32[2] {\n    return x * 2.0\n}\n```\n"
        "```python\n>>> 6 * 7\n42\n>>> print('a\\nb')\na\n...\n>>> 6 * 7\n43\n```\n"
        "```console\n$ tatami check twice.harp\n...\n$ tatami check twice.harp\nno\n$ rm twice.harp\n```\n```text\nx\n```\n",
        encoding="utf-8",
    )
    (tmp_path / "run").mkdir()
    harp, python, console, text = run_chapter(page, tmp_path / "run", ROOT / "examples" / "harp")
    assert harp.faults == () and python.shown == ">>> 6 * 7\n42\n>>> print('a\\nb')\na\nb\n>>> 6 * 7\n43\n"
    assert len(python.faults) == 1 and "Expected:\n    43" in python.faults[0]
    assert console.shown.startswith("$ tatami check twice.harp\ntwice.harp: 1 graph, no faults\n$")
    assert len(console.faults) == 2 and "not a command" in console.faults[1] and "not run" in text.faults[0]


def test_the_chapters_are_numbered_and_linked() -> None:
    index = (ROOT / "docs" / "tutorial" / "README.md").read_text()
    assert [int(p.stem.split("-")[0]) for p in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))
    assert all(f"]({p.name})" in index for p in CHAPTERS)
