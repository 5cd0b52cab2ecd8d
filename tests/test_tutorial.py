"""The chapters of docs/tutorial, and the guides, run: what they show is what happens.

A block `harp` is checked and saved under the name in its first line. A block `python` is a doctest; the blocks of a
chapter share their names. A block `console` has commands after `$`, run in the chapter's folder, and what they print;
`...` stands for anything.
"""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.harp.fmt import format_text

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))
GUIDES = {"torch-compile": "torch", "quantised": "onnx", "slow-kernel": "numpy"}
"""Guide in docs -> the package without which it is skipped."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export warns about its own code
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(GUIDES[name])
    monkeypatch.setenv("TATAMI_LEDGER", str(tmp_path / "ledger.sqlite"))
    if GUIDES[name] == "torch":
        from tatami import backends

        backends.reset()  # the guide prints a report of its own graphs
    test_a_chapter_runs(ROOT / "docs" / f"{name}.md", tmp_path, monkeypatch)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_chapter_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    names: dict[str, object] = {}
    found = list(BLOCK.finditer(path.read_text()))
    assert len(found) >= 2
    for block in found:
        kind, code = block[1], block[2]
        line = path.read_text()[: block.start()].count("\n") + 1
        match kind:
            case "harp":
                save(code)
            case "python":
                doctest_block(code, names, f"{path.name}:{line}")
            case "console":
                console(code, f"{path.name}:{line}")
            case _:
                raise AssertionError(f"{path.name}:{line}: a block of kind {kind!r} is not run")


def save(code: str) -> None:
    """`// name.harp` in the first line; a program with a fault says so by its name."""
    name = re.match(r"// (\w+\.harp)", code)
    assert name is not None, code
    Path(name[1]).write_text(code)
    if not name[1].startswith("wrong"):
        tt.open_model(name[1])
        assert format_text(code) == code, format_text(code)


def doctest_block(code: str, names: dict[str, object], where: str) -> None:
    test = doctest.DocTestParser().get_doctest(code, names, where, where, 0)
    assert test.examples, where
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert runner.failures == 0, "".join(report)


def console(code: str, where: str) -> None:
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        word, *arguments = shlex.split(command)
        assert word == "tatami", f"{where}: {command}"
        printed = CliRunner().invoke(main, arguments).output
        matches = doctest.OutputChecker().check_output(expected, printed, FLAGS)
        assert matches, f"{where}: {command} prints\n{printed}"


def test_the_chapters_are_numbered_and_linked() -> None:
    index = (ROOT / "docs" / "tutorial" / "README.md").read_text()
    assert [int(p.stem.split("-")[0]) for p in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))
    assert all(f"]({p.name})" in index for p in CHAPTERS)
