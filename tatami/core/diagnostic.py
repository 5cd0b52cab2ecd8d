"""One diagnostic: the fault, its place, the reason, and the suggestion (spec 3 §14).

Verifiers return lists of these and never raise. `TatamiError` carries a list to the caller; the command line prints them and
exits 1. Every code stands in `tatami.core.faults.diagnostics_table.TABLE` and in `docs/diagnostics.md`."""

from __future__ import annotations

from typing import Any

import msgspec

from tatami.core.faults.diagnostics_table import TABLE


class Patch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine-applicable repair: RFC 6902 operations on the document the diagnostic is about."""

    ops: tuple[dict[str, Any], ...]


class Diagnostic(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault or warning. `code` and `kind`: its row of the table; `at`: node, value or file position; `details`: shapes,
    limits, sizes by name; `excerpt`: the line of a source text with a caret below the place, or empty."""

    code: str
    kind: str
    at: str
    why: str
    suggestion: str
    patch: Patch | None = None
    details: dict[str, str] = {}
    excerpt: str = ""

    @property
    def is_warning(self) -> bool:
        """True if the code is a warning's (W…), which stops nothing."""
        return self.code.startswith("W")

    def __str__(self) -> str:
        excerpt = f"{self.excerpt}\n" if self.excerpt else ""
        return f"{self.code} {self.kind} at {self.at}: {self.why}\n{excerpt}  suggestion: {self.suggestion}"


def diagnostic(kind: str, at: str, why: str, suggestion: str, *, patch: Patch | None = None, **details: object) -> Diagnostic:
    """A diagnostic of a kind of the table. `details` become strings."""
    return Diagnostic(
        code=TABLE[kind].code,
        kind=kind,
        at=at or "(no name)",
        why=why,
        suggestion=suggestion,
        patch=patch,
        details={k: str(v) for k, v in details.items()},
    )


class TatamiError(Exception):
    """The error that every refused input raises. `diagnostics` holds at least one error."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n".join(str(d) for d in diagnostics))


def fail(kind: str, at: str, why: str, suggestion: str, *, patch: Patch | None = None, **details: object) -> TatamiError:
    """An error to raise: ``raise fail("UnknownOp", node.id, ..., ...)``."""
    return TatamiError(diagnostic(kind, at, why, suggestion, patch=patch, **details))


def raise_errors(diagnostics: list[Diagnostic]) -> None:
    """Raise TatamiError with all of `diagnostics` if one is an error; warnings alone pass."""
    if any(not d.is_warning for d in diagnostics):
        raise TatamiError(*diagnostics)
