"""Names that are legal in the language."""

from __future__ import annotations

import re
from collections.abc import Iterable

KEYWORDS = frozenset({"graph", "return", "fused", "fused_reduce", "fused_cumulative", "true", "false"})
"""Words that are never names."""
_VALUES = frozenset({"inf", "nan", "none", "None"})
"""Words that stand for a value."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HASH = re.compile(r"_[0-9a-f]{16}\Z")
"""The hash at the end of a name, which is left out for readability."""
_INDEX = re.compile(r"idx\d+\Z")


def is_name(text: str) -> bool:
    """True if `text` is a legal name: letters, digits and _, not a keyword."""
    return bool(_NAME.match(text)) and text not in KEYWORDS


class Names:
    """Legal, distinct names for the things of one scope."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._given: dict[str, str] = {}

    def __getitem__(self, thing: str) -> str:
        """The name of `thing`: the same each time, its own if that is legal and unused."""
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
