"""Line breaking: a small document algebra, and the function that lays it out.

A document is a string, a list of documents, or one of

    Line(flat)      `flat` if the group around it fits on the line, else a line break
    Nest(doc)       lines that begin inside are indented one step more
    Group(doc)      all its own lines are flat, or all are line breaks
    Broken(text)    `text` if the group around it does not fit, else nothing
    Comment(text)   `// …` with the end of its line; groups around it do not fit

>>> call = Group(["f(", Nest([Line(""), "first,", Line(" "), "second", Broken(",")]), Line(""), ")"])
>>> print(render(call, 80))
f(first, second)
>>> print(render(call, 12))
f(
    first,
    second,
)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

STEP = 4
"""Spaces per level of indentation."""


@dataclass(frozen=True, slots=True)
class Line:
    """`flat` if the group around it fits on the line, else a line break."""

    flat: str


@dataclass(frozen=True, slots=True)
class Nest:
    """A document in which lines are indented one step more."""

    doc: Doc


@dataclass(frozen=True, slots=True)
class Group:
    """A document whose own lines are all flat or all line breaks."""

    doc: Doc


@dataclass(frozen=True, slots=True)
class Broken:
    """`text` if the group around it does not fit on the line, else nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment at the end of the text before it, or on a line of its own. The text after it begins on another line."""

    text: str
    own_line: bool


Doc: TypeAlias = "str | list[Doc] | Line | Nest | Group | Broken | Comment"


def render(doc: Doc, width: int) -> str:
    """The text of `doc`, with lines of at most `width` characters wherever they can be broken."""
    out: list[str] = []
    column = 0
    pending: int | None = None
    """Indentation of the line that the next text has to begin, since a comment ends the current one; None: it goes on."""
    work: list[tuple[int, bool, Doc]] = [(0, False, doc)]

    def start_line(indent: int) -> None:
        nonlocal column
        if out and out[-1].endswith(" "):
            out[-1] = out[-1].rstrip(" ")
        out.append("\n" + " " * indent)
        column = indent

    while work:
        indent, flat, item = work.pop()
        match item:
            case str():
                if not item or (pending is not None and item.isspace()):
                    continue
                if pending is not None:
                    start_line(pending)
                    pending, item = None, item.lstrip(" ")
                out.append(item)
                column += len(item)
            case list():
                work.extend((indent, flat, d) for d in reversed(item))
            case Nest(inner):
                work.append((indent + STEP, flat, inner))
            case Broken(text):
                work.append((indent, flat, "" if flat else text))
            case Group(inner):
                fits = flat or _fits(inner, width - (column if pending is None else pending), work)
                work.append((indent, fits, inner))
            case Line(text):
                if flat:
                    if pending is None:
                        out.append(text)
                        column += len(text)
                else:
                    start_line(indent)
                    pending = None
            case Comment(text, own_line):
                on_fresh_line = not out or out[-1].startswith("\n")
                if pending is not None or (own_line and not on_fresh_line):
                    start_line(indent if pending is None else pending)
                elif not own_line and not on_fresh_line:
                    out[-1] = out[-1].rstrip(" ")
                    out.append("  ")
                out.append(text)
                pending = indent
    return "".join(out)


def _fits(doc: Doc, room: int, rest: list[tuple[int, bool, Doc]]) -> bool:
    """True if `doc`, laid flat, and everything up to the next possible line break have at most `room` characters."""
    work: list[tuple[bool, Doc]] = [(True, doc)]
    at = len(rest)
    while room >= 0:
        if not work:
            if at == 0:
                return True
            at -= 1
            work.append((rest[at][1], rest[at][2]))
        flat, item = work.pop()
        match item:
            case str():
                room -= len(item)
            case list():
                work.extend((flat, d) for d in reversed(item))
            case Nest(inner) | Group(inner):
                work.append((flat, inner))
            case Line(text):
                if not flat:
                    return True
                room -= len(text)
            case Broken(text):
                room -= 0 if flat else len(text)
            case Comment():
                return not flat  # inside: must break; behind: the line ends here
    return False
