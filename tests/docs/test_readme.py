"""The README keeps what it promises: its picture, its example, its table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tatami.cli import main
from tests.docs.pages import ROOT, sections

README = (ROOT / "README.md").read_text(encoding="utf-8")
BOX = re.compile(r"^ +((?:[a-z_]+/? +)+) {3,}\S", re.MULTILINE)
MOST_ROWS = 12
MOST_LETTERS = 130
"""Letters of a cell that are read, without the addresses of its links."""


def blocks(text: str) -> list[str]:
    """The indented blocks of a page, without their indentation."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    return ["\n".join(line[4:] for line in block.splitlines()).strip("\n") + "\n" for block in found]


def section(title: str) -> str:
    (found,) = (s.body for s in sections(README) if s.title == title)
    return found


def rows() -> list[list[str]]:
    lines = [line for line in section("What works").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_box_of_the_picture_is_a_folder() -> None:
    picture = blocks(README)[0]
    names = {word.strip("/") for line in BOX.findall("    " + picture.replace("\n", "\n    ")) for word in line.split()}
    assert {"frontend", "region", "loop", "gpu", "c", "cu", "runtime"} <= names
    assert [n for n in sorted(names) if not (ROOT / "tatami" / n).is_dir()] == []


def unknown_folders(head: str, folders: set[str]) -> set[str]:
    """Folders that are neither a box of the picture nor named below it, and names below it that are not folder."""
    boxes = {word.strip("/") for line in BOX.findall(head) for word in line.split()}
    return (folders - boxes) ^ set(re.findall(r"`(\w+)/`", head))


def test_each_folder_is_a_box_or_is_named_below_the_picture() -> None:
    folders = {p.name for p in (ROOT / "tatami").iterdir() if (p / "__init__.py").is_file()}
    head = README[: README.index("\n## ")]
    assert unknown_folders(head, folders | {"tatami"}) == set()
    assert unknown_folders(head, folders | {"tatami", "novel"}) == {"novel"}
    assert unknown_folders(head, (folders | {"tatami"}) - {"storage"}) == {"storage"}


def test_the_example_runs_and_is_the_golden_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = next(b for b in blocks(section("One example")) if b.startswith("import numpy"))
    names: dict[str, Any] = {}
    exec(code.replace("f = tt.load", "loaded = tt.load"), names)
    assert names["y"].shape == (32, 10) and np.allclose(names["y"].sum(1), 1, atol=1e-5)
    assert names["loaded"](x=np.zeros((3, 784), np.float32))["y"].shape == (3, 10)
    golden = ROOT / "tests" / "golden" / "mlp" / "0_frontend.txt"
    assert names["f"].stages["frontend"].text.strip() == golden.read_text().strip()


def test_the_table_is_short() -> None:
    assert 0 < len(rows()) <= MOST_ROWS
    for part, state in rows():
        read = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", state)
        assert len(read) <= MOST_LETTERS, f"{part}: {len(read)} letters"
        assert read.endswith(".") and not re.search(r"\. [A-Z]", read), f"{part}: one sentence"


def test_each_command_of_the_example_is_one() -> None:
    used = set(re.findall(r"^tatami (\w+)", "\n".join(blocks(section("One example"))), re.MULTILINE))
    assert used and used <= set(main.commands)


MODELS = ROOT / "docs" / "real-models.md"
FIGURES = (
    (r"\[(\d+) of (\d+) trained models\]", r"\*\*(?P<b>\d+) models of \d+ kinds: (?P<a>\d+) right"),
    (
        r"\[([\d.]+) times as fast as in ONNX Runtime\]\S* \(geometric mean\), the slowest ([\d.]+) times",
        r"Speed against ONNX Runtime: (?P<a>[\d.]+) in the mean \(geometric\), least (?P<b>[\d.]+) ",
    ),
)
"""Two numbers of a sentence of the README, and the same numbers `a` and `b` on the page of trained models."""


def with_figures(text: str, page: str) -> str:
    """The README with the figures of the page of trained models."""
    for sentence, source in FIGURES:
        (here,), (there,) = re.finditer(sentence, text), re.finditer(source, page)
        first, second = here.span(1), here.span(2)
        text = text[: first[0]] + there["a"] + text[first[1] : second[0]] + there["b"] + text[second[1] :]
    return text


def test_figures_of_trained_models_are_those_of_their_page(update_golden: bool) -> None:
    current = with_figures(README, MODELS.read_text(encoding="utf-8"))
    if update_golden:
        (ROOT / "README.md").write_text(current, encoding="utf-8")
    else:
        assert current == README, "make update-golden writes the figures of docs/real-models.md into the README"


def test_a_figure_of_another_record_is_found() -> None:
    page = MODELS.read_text(encoding="utf-8")
    assert with_figures(README, re.sub(r"(\d+) right", "12 right", page, count=1)) != README
    assert with_figures(README, re.sub(r"least [\d.]+ ", "least 0.01 ", page, count=1)) != README
