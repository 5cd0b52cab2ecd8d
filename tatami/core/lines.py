"""A stage's text line by line, each with the thing that it tells of: what `show` prints, and what links one stage to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Line(NamedTuple):
    """One line of a text, without its end. `of`: the program, then names down to the thing that the line tells of, such as
    ("main", "r0", "n16") for a let; empty: a line that tells of nothing alone."""

    text: str
    of: tuple[str, ...] = ()


def split_lines(text: str, of: tuple[str, ...] = ()) -> list[Line]:
    """The lines of a text that tells of one thing."""
    return [Line(line, of) for line in text.split("\n")]


def ended(blocks: Iterable[Iterable[Line]]) -> Iterator[Line]:
    """The lines of all blocks, an empty line after each."""
    for block in blocks:
        yield from block
        yield Line("")


def text_of(lines: Iterable[Line]) -> str:
    """The lines as one text, joined by line breaks."""
    return "\n".join(line.text for line in lines)
