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
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "extending.md"
BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def edits(text: str) -> Iterator[tuple[str, str]]:
    """(kind, body) of each block of the page, in order."""
    for m in BLOCK.finditer(text):
        yield m[1], m[2]


def new_file(body: str) -> Path:
    first = re.match(r"# (\S+\.py)\n", body)
    assert first is not None, f"a block of Python names its file: {body[:60]!r}"
    return Path(first[1])


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


def test_the_recipes_work(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tatami", tmp_path / "tatami", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    blocks = list(edits(PAGE.read_text(encoding="utf-8")))
    tests = [body for kind, body in blocks if kind == "python" and new_file(body).parts[0] == "tests"]
    for body in tests:
        (tmp_path / new_file(body)).write_text(body, encoding="utf-8")
    before = outcomes(tmp_path)
    passing = [f for f, outcome in before.items() if outcome == "PASSED"]
    assert not passing, f"these pass before the recipe: {passing}"
    for kind, body in blocks:
        if kind == "diff":
            apply(body, tmp_path)
        elif body not in tests:
            assert not (tmp_path / new_file(body)).exists(), new_file(body)
            (tmp_path / new_file(body)).write_text(body, encoding="utf-8")
    after = outcomes(tmp_path)
    assert len(after) == len(tests) + 1
    assert all(outcome in ("PASSED", "SKIPPED") for file, outcome in after.items() if file), after[""]


def test_an_edit_without_its_place_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\nx = 1\n")
    apply("--- a.py\n y = 2\n+z = 3\n", tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 2\nz = 3\nx = 1\n"
    for fault in ("--- a.py\n x = 1\n+z = 3\n", "--- a.py\n q = 1\n+z = 3\n"):
        with pytest.raises(AssertionError, match="places have"):
            apply(fault, tmp_path)
