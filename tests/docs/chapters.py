"""Chapters and guides, run: what they show is what happens. The tests hold it, and the site shows what was printed.

A block `harp` is checked and saved under the name in its first line. A block `python` is a doctest; the blocks of a
chapter share their names. A block `console` has commands after `$`, run in the chapter's folder, and what they print;
`...` stands for anything."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.harp.fmt import format_text

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ANYTHING = "..."
"""The text of a page that stands for any output."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Ran:
    """A block that was run. `start`, `end`: of its text in the page; `shown`: that text with what was printed in place of outputs that
    have `...`; `faults`: what does not hold, each with its line."""

    start: int
    end: int
    shown: str
    faults: tuple[str, ...]


def run_chapter(path: Path, folder: Path, examples: Path) -> list[Ran]:
    """The blocks of a page, run in the empty `folder`, in which `examples` are copied."""
    shutil.copytree(examples, folder / "examples")
    text = path.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    with chdir(folder):
        return [_ran(block, f"{path.name}:{_line(text, block.start())}", names) for block in BLOCK.finditer(text)]


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _ran(block: re.Match[str], where: str, names: dict[str, object]) -> Ran:
    code = block[2]
    match block[1]:
        case "harp":
            shown, faults = code, list(_saved(code, where))
        case "python":
            shown, faults = _python(code, names, where)
        case "console":
            shown, faults = _console(code, where)
        case kind:
            shown, faults = code, [f"{where}: a block of kind {kind!r} is not run"]
    return Ran(block.start(2), block.end(2), shown, tuple(faults))


def _saved(code: str, where: str) -> Iterator[str]:
    """Save a program; one with a fault says so by its name."""
    name = re.match(r"// (\w+\.harp)", code)
    if name is None:
        yield f"{where}: the first line does not name a file"
        return
    Path(name[1]).write_text(code, encoding="utf-8")
    if not name[1].startswith("wrong"):
        tt.open_model(name[1])
        if format_text(code) != code:
            yield f"{where}: tatami fmt would write\n{format_text(code)}"


class _Runner(doctest.DocTestRunner):
    """A runner that keeps what every example printed."""

    def __init__(self) -> None:
        super().__init__(optionflags=FLAGS)
        self.printed: dict[int, str] = {}

    def report_success(self, out: object, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self.printed[example.lineno] = got


def _python(code: str, names: dict[str, object], where: str) -> tuple[str, list[str]]:
    test = doctest.DocTestParser().get_doctest(code, names, where, where, 0)
    report: list[str] = []
    runner = _Runner()
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    if not test.examples:
        return code, [f"{where}: no example"]
    lines = code.splitlines(keepends=True)
    for example in reversed(test.examples):
        if ANYTHING in example.want and example.lineno in runner.printed:
            first = example.lineno + example.source.count("\n")
            lines[first : first + example.want.count("\n")] = [_ended(runner.printed[example.lineno])]
    return "".join(lines), ["".join(report)] if runner.failures else []


def _console(code: str, where: str) -> tuple[str, list[str]]:
    out, faults = "", []
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        word, *arguments = shlex.split(command)
        if word != "tatami":
            faults.append(f"{where}: {command} is not a command of tatami")
            continue
        printed = CliRunner().invoke(main, arguments).output
        if not doctest.OutputChecker().check_output(expected, printed, FLAGS):
            faults.append(f"{where}: {command} prints\n{printed}")
        out += f"$ {command}\n{_ended(printed) if ANYTHING in expected else expected}"
    return out, faults


def _ended(text: str) -> str:
    return f"{text.rstrip()}\n"
