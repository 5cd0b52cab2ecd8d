"""Scratch that a kernel's threads need, for a runtime to allocate before the first call."""

from __future__ import annotations

from collections.abc import Iterable

from tatami.core.kernel import LocalBytes
from tatami.loop.ir import LocalBuffer, Parallel, Stmt

ALIGNED = 64
"""Alignment of a local buffer, in bytes: a cache line."""


def local_bytes(body: Iterable[Stmt]) -> LocalBytes:
    """Bytes of the local buffers of known size at the head of the kernel and of its parallel loops, which run one after the
    other."""
    body = tuple(body)
    helper = max((_bytes((*s.prologue, *s.body)) for s in body if isinstance(s, Parallel)), default=0)
    return LocalBytes(_bytes(body) + helper, helper)


def _bytes(stmts: Iterable[Stmt]) -> int:
    sizes = [(s.elements.as_int() or 0) * s.dtype.itemsize for s in stmts if isinstance(s, LocalBuffer)]
    return sum(-(-max(1, size) // ALIGNED) * ALIGNED for size in sizes)
