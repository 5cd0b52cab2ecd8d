"""The tree of a kernel's statements and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tatami.loop.ir import For, If, Parallel, Stmt


def nodes(value: Any) -> Iterator[Any]:
    """Statements and values, those inside them too."""
    stack = [value]
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind is tuple:
            stack.extend(reversed(node))
            continue
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = tuple(reversed(kind.__struct_fields__)) if issubclass(kind, msgspec.Struct) else ()
        if isinstance(node, msgspec.Struct):
            yield node
        for name in fields:
            part = getattr(node, name)
            if isinstance(part, _INNER):
                stack.append(part)


_INNER = (msgspec.Struct, tuple)
_FIELDS: dict[type, tuple[str, ...]] = {}
"""The fields of a node's type, last first."""


def blocks(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """The block and those inside it."""
    yield body
    for stmt in body:
        match stmt:
            case For(body=inner):
                yield from blocks(inner)
            case If(then=then, otherwise=otherwise):
                yield from blocks(then)
                yield from blocks(otherwise)
            case Parallel(body=inner, prologue=prologue):
                yield from blocks(prologue)
                yield from blocks(inner)
            case _:
                pass
