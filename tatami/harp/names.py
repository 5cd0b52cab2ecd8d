"""Names that the language can say."""

from __future__ import annotations

import re
from collections.abc import Iterable

KEYWORDS = frozenset({"graph", "return", "fused", "fused_reduce", "fused_cumulative", "true", "false"})
_VALUES = frozenset({"inf", "nan", "none", "None"})
"""Words that stand for a value."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HASH = re.compile(r"_[0-9a-f]{16}\Z")
"""A hash in a name says nothing to a reader."""
_INDEX = re.compile(r"idx\d+\Z")


def is_name(text: str) -> bool:
    return bool(_NAME.match(text)) and text not in KEYWORDS


class Names:
    """Legal, different names for things of one scope."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._given: dict[str, str] = {}

    def __getitem__(self, thing: str) -> str:
        """The name of `thing`: the same each time, its own where that is legal and free."""
        if thing not in self._given:
            stem = re.sub(r"[^A-Za-z0-9_]+", "_", _HASH.sub("", thing)) or "v"
            if not is_name(stem) or stem in _VALUES or _INDEX.match(stem):
                stem = f"v_{stem}"
            name, count = stem, 0
            while name in self._taken:
                count += 1
                name = f"{stem}_{count}"
            self._taken.add(name)
            self._given[thing] = name
        return self._given[thing]
