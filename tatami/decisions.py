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
    partitions: dict[str, Any] = {}
    plans: dict[str, Any] = {}
    """key → plan document; the key "" holds plans without one."""
    calls: dict[str, Literal["inline", "call"]] = {}
    """Graph key → what becomes of the calls of that graph; the key "" speaks of all others."""


def load_decisions(source: Decisions | dict[str, Any] | str | Path | None) -> Decisions:
    """From a file, a JSON value or nothing. A plan document given alone becomes the plan without a key."""
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
        why = f"a {type(value).__name__} is no decisions document"
        raise fail("InvalidDocument", at, why, "give a path, a dict or what f.compilation.decisions is")
    if "tile" in value or "kind" in value:
        value = {"plans": {"": value}}
    return from_builtins(value, Decisions, at)


def decisions_text(decisions: Decisions) -> str:
    return dump_text(to_builtins(decisions))
