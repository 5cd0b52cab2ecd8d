"""Text for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tatami.core.diagnostic import Diagnostic


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Print each diagnostic on stderr, with control characters made visible."""
    for d in diagnostics:
        click.echo(printable(str(d)), err=True)


def printable(text: str) -> str:
    """The text with control characters of hostile names replaced by visible ones."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
