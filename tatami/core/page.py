"""Pages: C and CUDA text in files of its own, with named holes (decision 0063).

    /* How a row is copied.             the comment on top says what the page is and what each hole takes; it is not printed
       @TYPE   type of an element
       @SIZES  declarations of sizes
       @EACH   row i, where rows differ
    */
    void copy(@TYPE *to) {              a hole in a line takes a text
      @SIZES                            a hole alone on its line takes lines, each indented as the hole is; none: no line
    @if EACH                            lines up to @end, or @else, for a text that is not empty, a number but 0, and True
      to[@EACH] = 0;
    @end
    }

A page is filled once, from its first line to its last: what stands in a hole is never read for holes. Preprocessor lines
stay at the margin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_HOLE = re.compile(r"@([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)")
_LINES = re.compile(r"( *)@([A-Z][A-Z0-9_]*)")
_TOP = re.compile(r"/\*.*?\*/\n", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page by its name: the comment on top, and the lines below it."""

    name: str
    about: str
    lines: tuple[str, ...]

    @property
    def holes(self) -> frozenset[str]:
        """The names that `fill` takes, all of them."""
        names = (m[1] for line in self.lines for m in _HOLE.finditer(line))
        return frozenset(names) | {line.split()[1] for line in self.lines if line.lstrip().startswith("@if ")}

    def fill(self, **values: str | int | Iterable[str]) -> str:
        """The text with a value in each hole; it ends with a new line. Raises ValueError for a name too many or too few."""
        if unknown := self.holes ^ values.keys():
            raise ValueError(f"{self.name}: {sorted(unknown)} are not both holes of the page and given")
        out: list[str] = []
        shown = [True]
        for line in self.lines:
            word = line.strip()
            if word.startswith("@if "):
                shown.append(shown[-1] and bool(values[word.removeprefix("@if ")]))
            elif word == "@else":
                shown[-1] = shown[-2] and not shown[-1]
            elif word == "@end":
                shown.pop()
            elif shown[-1]:
                alone = _LINES.fullmatch(line)
                out += _indented(alone[1], values[alone[2]]) if alone else [_HOLE.sub(lambda m: str(values[m[1]]), line)]
        return "".join(f"{line}\n" for line in out)


def _indented(pad: str, value: str | int | Iterable[str]) -> list[str]:
    """Lines of a text, or of each of several, behind `pad`. A new line at the end of a text begins no line."""
    texts = ([str(value)] if value != "" else []) if isinstance(value, str | int) else value
    lines = [line for text in texts for line in text.removesuffix("\n").split("\n")]
    return [line if line.startswith("#") or not line else pad + line for line in lines]


def read_page(name: str, text: str) -> Page:
    """The page of a file's text, which begins with its comment."""
    top = _TOP.match(text)
    if top is None:
        raise ValueError(f"{name} begins with no comment that says what its holes take")
    return Page(name, top[0], tuple(text[top.end() :].removesuffix("\n").split("\n")))


@cache
def page(package: str, name: str) -> Page:
    """The page `name` in the folder `pages` of a package."""
    return read_page(name, (files(package) / "pages" / name).read_text(encoding="utf-8"))
