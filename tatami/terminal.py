"""Text for a person at a terminal."""

from __future__ import annotations

from typing import Any

import click


def show_diagnostics(diagnostics: Any) -> None:
    for d in diagnostics:
        click.echo(printable(str(d)), err=True)


def printable(text: str) -> str:
    """Control characters of hostile names shown, not sent to the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
