"""A graph to look at: labelled boxes, arrows, and clusters inside clusters. What `to_dot` and `to_svg` print.

Labels are whatever the user called things; `picture_dot` and `picture_svg` escape them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

BoxKind = Literal["input", "constant", "operation", "contraction", "call", "output"]


class Box(msgspec.Struct, frozen=True, omit_defaults=True):
    """`lines`: the name, then dtypes and shapes. `note`: what a pointer resting on it shows."""

    id: str
    lines: tuple[str, ...]
    kind: BoxKind
    cluster: str = ""
    note: str = ""


class Arrow(msgspec.Struct, frozen=True):
    source: str
    to: str


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """Boxes that belong together: a graph of the module, or the operations of one kernel. `parent`: another cluster."""

    id: str
    label: str
    parent: str = ""


class Picture(msgspec.Struct, frozen=True):
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    clusters: tuple[Cluster, ...] = ()


def printable(text: str, limit: int = 0) -> str:
    """The text without what no document can hold (control characters, lone surrogates); cut to `limit` characters."""
    kept = "".join(c if c >= " " and not 0x7F <= ord(c) < 0xA0 and not 0xD800 <= ord(c) < 0xE000 and ord(c) & 0xFFFE != 0xFFFE
                   else "\N{REPLACEMENT CHARACTER}" for c in text)  # fmt: skip
    return kept if not limit or len(kept) <= limit else kept[: limit - 1] + "…"
