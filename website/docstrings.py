"""Docstrings as Markdown: examples and aligned lines become code, lines about parameters a list.

model: a path or a Graph.            - `model`: a path or a Graph.
trust: its code may run.       ->    - `trust`: its code may run.
Raises TatamiError.
                                     Raises TatamiError.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import griffe

ALIGNED = re.compile(r"\S.* {3,}\S")
"""A line of two columns."""


class Docstrings(griffe.Extension):
    """The extension of mkdocstrings that applies `as_markdown` to every object."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            names = [p.name for p in obj.parameters] if isinstance(obj, griffe.Function | griffe.Class) else []
            obj.docstring.value = as_markdown(obj.docstring.value, names)


def as_markdown(docstring: str, parameters: Collection[str]) -> str:
    return "\n\n".join(block(lines.strip("\n"), parameters) for lines in re.split(r"\n[ ]*\n", docstring))


def block(text: str, parameters: Collection[str]) -> str:
    """One paragraph; `text` has no blank line."""
    lines = text.split("\n")
    if lines[0].startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if not text.startswith(" ") and all(ALIGNED.match(line) or line.startswith(" ") for line in lines):
        return f"```text\n{text}\n```"
    out: list[str] = []
    listing = False
    for line in lines:
        about = re.match(r"(\w+): ", line)
        is_item = about is not None and about[1] in parameters
        if out and (line.startswith("Raises ") or (is_item and not listing)):
            out.append("")
        out.append(f"- `{about[1]}`: {line[about.end() :]}" if about and is_item else line)
        listing = listing or is_item
    return "\n".join(out)
