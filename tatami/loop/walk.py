"""The tree of a kernel's statements and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tatami.loop.ir import For, If, Parallel, Stmt


def nodes(value: Any) -> Iterator[Any]:
    """Statements and values, those inside them too."""
    if isinstance(value, tuple):
        for v in value:
            yield from nodes(v)
    elif isinstance(value, msgspec.Struct):
        yield value
        for field in value.__struct_fields__:
            yield from nodes(getattr(value, field))


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
