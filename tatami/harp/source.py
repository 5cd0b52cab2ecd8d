"""A text and its places: offsets to line and column, the line with a caret, diagnostics with their place."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic

_LONG_WORD = re.compile(r"\w{81,}")
_WIDEST = 100
"""Maximum number of characters of a line in an excerpt."""


@dataclass(frozen=True, slots=True)
class Span:
    """The characters [start, stop) of a text."""

    start: int
    stop: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of `other`."""
        return Span(self.start, other.stop)


@dataclass(frozen=True)
class Source:
    """The text of one file. `name`: its name in diagnostics."""

    name: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]

    def place(self, span: Span) -> tuple[int, int]:
        """(line, column), both from 1; a column counts characters."""
        line = bisect_right(self._line_starts, span.start)
        return line, span.start - self._line_starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The position of the character at this line and column, both from 1."""
        return self._line_starts[line - 1] + column - 1

    def at(self, span: Span) -> str:
        """The place as text, ``model.harp:3:9``."""
        line, column = self.place(span)
        return f"{self.name}:{line}:{column}"

    def excerpt(self, span: Span) -> str:
        """The line with carets below the span; a long line is cut around it."""
        line, column = self.place(span)
        start = self._line_starts[line - 1]
        stop = self.text.find("\n", start)
        text = self.text[start : len(self.text) if stop < 0 else stop].rstrip("\r")
        first = max(0, column - 1 - _WIDEST * 3 // 4) if len(text) > _WIDEST else 0
        shown = text[first : first + _WIDEST]
        before = shown[: column - 1 - first]
        width = max(1, min(span.stop - span.start, len(shown) - len(before)))
        lead = "…" if first else ""
        tail = "…" if first + _WIDEST < len(text) else ""
        margin = f"{line:>5} | "
        gap = " " * (len(lead) + _cells(before))
        carets = "^" * max(1, _cells(shown[len(before) : len(before) + width]))
        return f"{margin}{lead}{_visible(shown)}{tail}\n{' ' * 5} | {gap}{carets}"

    def fault(self, kind: str, span: Span, why: str, suggestion: str) -> Diagnostic:
        """A diagnostic at `span`, with the line as its excerpt."""
        line, column = self.place(span)
        found = diagnostic(kind, self.at(span), _cut(why), _cut(suggestion), line=line, column=column)
        return msgspec.structs.replace(found, excerpt=self.excerpt(span))


def _cut(text: str) -> str:
    """The text with very long words shortened."""
    return _LONG_WORD.sub(lambda m: m[0][:40] + "…", text)


def _visible(text: str) -> str:
    """The text with control characters, tabs among them, as one mark each, so that carets stand below their characters."""
    return "".join(" " if c == "\t" else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _cells(text: str) -> int:
    """Number of columns that the text takes in a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
