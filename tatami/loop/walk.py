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
        fields = _FIELDS[kind]
        if fields is None:
            continue
        yield node
        for name in fields:
            part = getattr(node, name)
            kind = type(part)
            if kind is tuple or _FIELDS[kind] is not None:
                stack.append(part)


class _Fields(dict[type, tuple[str, ...] | None]):
    """Type -> the fields of a node of this type, last first; None if it is not a node's."""

    def __missing__(self, kind: type) -> tuple[str, ...] | None:
        self[kind] = found = tuple(reversed(kind.__struct_fields__)) if issubclass(kind, msgspec.Struct) else None
        return found


_FIELDS = _Fields()


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
