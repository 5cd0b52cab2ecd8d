"""The tree of a kernel's statements and values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
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
        fields = _fields(kind)
        if fields is None:
            continue
        yield node
        for name in fields:
            part = getattr(node, name)
            kind = type(part)
            if kind is tuple or _fields(kind) is not None:
                stack.append(part)


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a node's type, last first; None for a type that is not a node's."""
    return tuple(reversed(kind.__struct_fields__)) if issubclass(kind, msgspec.Struct) else None


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
