"""Text for people at a terminal, and diagnostics for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tatami.core.diagnostic import Diagnostic

_KEPT = "tatami.diagnostics"
"""Key of a command's kept diagnostics in the context of click."""


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Print each diagnostic on stderr, with control characters made visible; with `--diagnostics json`, keep it for the list
    that is printed when the command ends."""
    context = click.get_current_context(silent=True)
    kept: list[Diagnostic] | None = None if context is None else context.find_root().meta.get(_KEPT)
    if kept is not None:
        kept += [d for d in diagnostics if d not in kept]
        return
    for d in diagnostics:
        click.echo(printable(str(d)), err=True)


def keep_diagnostics(context: click.Context) -> None:
    """Print the diagnostics of the command as one JSON list on stderr when it ends (spec 3 §14), in place of texts."""
    kept: list[Diagnostic] = []
    context.meta[_KEPT] = kept

    def told() -> None:
        from tatami.core.codec import dump_text, to_builtins

        click.echo(dump_text(to_builtins(kept)), nl=False, err=True)

    context.call_on_close(told)


def printable(text: str) -> str:
    """The text with control characters of hostile names replaced by visible ones."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
