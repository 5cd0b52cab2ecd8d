"""Lines of text with indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """Lines of text, each indented by the current depth; lines that begin with # are not indented."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        """Append lines at the current depth."""
        self.out += [("  " * self.depth + line) if line and not line.startswith("#") else line for line in lines]

    @contextmanager
    def block(self, head: str = "", tail: str = "}") -> Iterator[None]:
        """A context whose lines are one deeper, between braces after `head`."""
        self.add(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)

    def text(self) -> str:
        """All lines joined to one text."""
        return "\n".join(self.out) + "\n"
