"""Lines of text with indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    def __init__(self) -> None:
        self.out: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        self.out += [("  " * self.depth + line) if line and not line.startswith("#") else line for line in lines]

    @contextmanager
    def block(self, head: str = "", tail: str = "}") -> Iterator[None]:
        self.add(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)

    def text(self) -> str:
        return "\n".join(self.out) + "\n"
