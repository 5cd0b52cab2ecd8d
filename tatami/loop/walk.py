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
        if isinstance(node, tuple):
            stack.extend(reversed(node))
        elif isinstance(node, msgspec.Struct):
            yield node
            inside = [part for name in node.__struct_fields__ if isinstance(part := getattr(node, name), _INNER)]
            stack.extend(reversed(inside))


_INNER = (msgspec.Struct, tuple)


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
