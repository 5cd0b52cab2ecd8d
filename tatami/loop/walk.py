"""The tree of a kernel's statements and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def rewritten(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same tree with other nodes: what `change` says of one, which is then left as it is, None to go on inside it. What
    does not change is shared."""
    made = change(value)
    if made is not None:
        return made
    if isinstance(value, tuple):
        parts = [rewritten(part, change) for part in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else tuple(parts)
    if not isinstance(value, msgspec.Struct):
        return value
    old = [(n, getattr(value, n)) for n in value.__struct_fields__]
    new = {n: made for n, part in old if (made := rewritten(part, change)) is not part}
    return msgspec.structs.replace(value, **new) if new else value
