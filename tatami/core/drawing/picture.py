"""A graph to look at: labelled boxes, arrows, and clusters inside clusters, which `to_dot` and `to_svg` print.

Labels are the user's own names; `dot` and `svg` escape them."""

from __future__ import annotations

from typing import Literal

import msgspec

BoxKind = Literal["input", "constant", "operation", "contraction", "call", "output"]


class Box(msgspec.Struct, frozen=True, omit_defaults=True):
    """A box. `lines`: the name, then dtypes and shapes. `note`: text shown while a pointer rests on it."""

    id: str
    lines: tuple[str, ...]
    kind: BoxKind
    cluster: str = ""
    note: str = ""


class Arrow(msgspec.Struct, frozen=True):
    """An arrow between two boxes, given by their ids."""

    source: str
    to: str


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """Boxes that belong together: a graph of the module, or the operations of one kernel. `parent`: another cluster."""

    id: str
    label: str
    parent: str = ""


class Picture(msgspec.Struct, frozen=True):
    """The boxes, arrows and clusters of one drawing."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    clusters: tuple[Cluster, ...] = ()


def printable(text: str, limit: int = 0) -> str:
    """The text without characters that no document can hold (control characters, lone surrogates), cut to `limit` (0: not
    cut)."""
    kept = "".join(c if c >= " " and not 0x7F <= ord(c) < 0xA0 and not 0xD800 <= ord(c) < 0xE000 and ord(c) & 0xFFFE != 0xFFFE
                   else "\N{REPLACEMENT CHARACTER}" for c in text)  # fmt: skip
    return kept if not limit or len(kept) <= limit else kept[: limit - 1] + "…"
