"""The recipes of docs/extending.md work: in a copy of the package their tests fail, the edits are made, the tests pass.

A block `python` whose first line is a comment with a path is a new file. A block `diff` begins with ``--- path``; its hunks,
parted by ``@@``, are lines that stay, come (`+`) and go (`-`), and have one place in the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.recipes import PAGE, edits, names, new_file, recipes


def apply(body: str, root: Path) -> None:
    """Make the edits of one `diff` block in the copy at `root`."""
    head, _, rest = body.partition("\n")
    assert head.startswith("--- "), head
    path = root / head.removeprefix("--- ")
    text = path.read_text(encoding="utf-8")
    for hunk in re.split(r"^@@\n", rest, flags=re.MULTILINE):
        lines = hunk.splitlines()
        assert lines and all(line[:1] in ("", " ", "+", "-") for line in lines), f"{head}: {hunk}"
        before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
        after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(before) == 1, f"{head}: {text.count(before)} places have\n{before}"
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


def outcomes(root: Path) -> dict[str, str]:
    """File of a test -> its last outcome but the passed ones, where any test did not pass."""
    environment = {**os.environ, "PYTHONPATH": str(root), "TATAMI_QUICK_BUILD": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:logging",
        "-c",
        os.devnull,
        f"--rootdir={root}",
        "tests",
    ]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED)\S* (?:\[\d+\] )?(tests/\w+\.py)", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    worst: dict[str, str] = {}
    for outcome, file in found:
        if worst.get(file, "PASSED") == "PASSED":
            worst[file] = outcome
    return {**worst, "": done.stdout}


def is_test(kind: str, body: str) -> bool:
    return kind == "python" and new_file(body).parts[0] == "tests"


def make_edits(blocks: list[tuple[str, str]], root: Path) -> None:
    """All recipes, one after the other, in the copy at `root`; their tests are not part of it."""
    for kind, body in blocks:
        if kind == "diff":
            apply(body, root)
        elif not is_test(kind, body):
            assert not (root / new_file(body)).exists(), new_file(body)
            (root / new_file(body)).write_text(body, encoding="utf-8")


def test_each_edit_has_its_place(tmp_path: Path) -> None:
    """A quick test, in a second, of the places that the recipes edit."""
    blocks = list(edits(PAGE.read_text(encoding="utf-8")))
    for kind, body in blocks:
        if kind == "diff":
            path = Path(body.partition("\n")[0].removeprefix("--- "))
            if (ROOT / path).exists() and not (tmp_path / path).exists():
                (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, tmp_path / path)
        elif not is_test(kind, body):
            (tmp_path / new_file(body)).parent.mkdir(parents=True, exist_ok=True)
    make_edits(blocks, tmp_path)


def test_the_recipes_work(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tatami", tmp_path / "tatami", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    blocks = list(edits(PAGE.read_text(encoding="utf-8")))
    tests = [body for kind, body in blocks if is_test(kind, body)]
    for body in tests:
        (tmp_path / new_file(body)).write_text(body, encoding="utf-8")
    before = outcomes(tmp_path)
    passing = [f for f, outcome in before.items() if outcome == "PASSED"]
    assert not passing, f"these pass before the recipe: {passing}"
    make_edits(blocks, tmp_path)
    after = outcomes(tmp_path)
    assert len(after) == len(tests) + 1
    assert all(outcome in ("PASSED", "SKIPPED") for file, outcome in after.items() if file), after[""]


def wrong_files(text: str) -> list[str]:
    """Faults of the table of files, and of the line *Files* in each recipe."""
    found: list[str] = []
    rows = re.findall(r"^\| \[([^\]]+)\]\(#[^)]*\) \| (\d+) \| (.*) \|$", text, re.MULTILINE)
    wanted = recipes(text)
    if [title.lower() for title, _, _ in rows] != [title.lower() for title in wanted]:
        found.append(f"the table has the rows {[r[0] for r in rows]}, the recipes are {list(wanted)}")
    for (title, files), (_, count, which) in zip(wanted.items(), rows):
        if names(which) != files or int(count) != len(files):
            found.append(f"{title}: the table has {count} files, {which}; its edits touch {len(files)}, {files}")
        lines = re.findall(r"^Files: (.*)\.$", text.partition(f"## {title}\n")[2].partition("\n## ")[0], re.MULTILINE)
        before, _, after = "".join(lines).partition("; then ")
        if len(lines) != 1 or names(before) != files:
            found.append(f"{title}: the line Files names {names(before)}, its edits touch {files}")
        found += [f"{title}: there is no {f}" for f in names(after) if not (ROOT / f).exists()]
    return found


def test_each_recipe_says_which_files_it_touches() -> None:
    assert wrong_files(PAGE.read_text(encoding="utf-8")) == []


def test_a_recipe_with_another_file_is_found() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for fault in (
        text.replace("| 4 |", "| 5 |"),
        text.replace("--- tatami/tiny/lowering/elementwise.py", "--- tatami/tiny/other.py"),
        text.replace("## A pass\n", "## A passage\n"),
        text.replace("; then `tests/frontend/cases.py`", "; then `tests/frontend/none.py`"),
    ):
        assert fault != text and wrong_files(fault), fault[:40]


def test_an_edit_without_its_place_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\nx = 1\n")
    apply("--- a.py\n y = 2\n+z = 3\n", tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 2\nz = 3\nx = 1\n"
    for fault in ("--- a.py\n x = 1\n+z = 3\n", "--- a.py\n q = 1\n+z = 3\n"):
        with pytest.raises(AssertionError, match="places have"):
            apply(fault, tmp_path)
