"""The tree of a kernel's statements and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


def nodes(value: Any) -> Iterator[Any]:
    """Statements and values, those inside them too."""
    if isinstance(value, tuple):
        for v in value:
            yield from nodes(v)
    elif isinstance(value, msgspec.Struct):
        yield value
        for field in value.__struct_fields__:
            yield from nodes(getattr(value, field))
