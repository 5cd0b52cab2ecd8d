"""Partitions and plans that a user fixes in advance, as one document (design §4).

Plans are keyed by the canonical Region's hash and the target class, partitions by the tiny Program's hash, calls by the
called graph's hash, never by a name or a position. A bare plan (no key) applies to the only Region of its kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from tatami.core.codec import dump_text, from_builtins, parse_text, to_builtins
from tatami.core.diagnostic import fail
from tatami.core.document import read_bytes


class Decisions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Partitions, plans and calls that a user fixes. `partitions`: hash of a tiny Program -> document."""

    partitions: dict[str, Any] = {}
    plans: dict[str, Any] = {}
    """Key -> plan document; the key "" holds plans without one."""
    calls: dict[str, Literal["inline", "call"]] = {}
    """Hash of a graph -> the decision about its calls; the key "" stands for all other graphs."""


def load_decisions(source: Decisions | dict[str, object] | str | Path | None) -> Decisions:
    """The decisions in a file or a JSON value; empty for None. A plan document given alone becomes the plan without a key.
    Raises InvalidDocument."""
    if source is None:
        return Decisions()
    if isinstance(source, Decisions):
        return source
    value = source
    at = "decisions"
    if isinstance(source, str | Path):
        path = Path(source)
        at = path.name
        value = parse_text(read_bytes(path), at)
    if not isinstance(value, dict):
        why = f"a {type(value).__name__} is not a decisions document"
        raise fail("InvalidDocument", at, why, "give a path, a dict or what f.compilation.decisions is")
    if "tile" in value or "kind" in value:
        value = {"plans": {"": value}}
    return from_builtins(value, Decisions, at)


def decisions_text(decisions: Decisions) -> str:
    """The decisions as JSON text, the same for equal decisions."""
    return dump_text(to_builtins(decisions))
