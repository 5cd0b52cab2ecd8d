"""Digests of ranges of memory, which tell whether they have changed (`c/runtime_text/digest.c`, `watch.c`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tatami.runtime.building.library import Library
from tatami.runtime.cpu import watch

BLOCK = 1 << 17
"""Bytes per digest: work for a thread that is long compared with its start, and many blocks per weight."""
LOOKS = 4
"""Number of readings without a change after which pages are watched: protecting pages that each step of a training writes
costs a fault per page."""


class _Blocks:
    """Digests of blocks of memory, 64 bits each, made by the threads of `pool`."""

    def __init__(self, library: Library, pool: ctypes.c_void_p, spans: Sequence[tuple[int, int]], plain: bool) -> None:
        blocks = [(at + k, min(BLOCK, size - k)) for at, size in spans for k in range(0, size, BLOCK)]
        count = len(blocks)
        self._call = library.tatami_digest
        self._call.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2]
        self._call.restype = ctypes.c_int
        starts = (ctypes.c_void_p * max(1, count))(*(at for at, _ in blocks))
        sizes = (ctypes.c_int64 * max(1, count))(*(size for _, size in blocks))
        self._arguments = (pool, count, starts, sizes, (ctypes.c_uint64 * max(1, count))())
        self._plain = int(plain)
        self._call(*self._arguments, 1, self._plain)

    def changed(self) -> bool:
        return bool(self._call(*self._arguments, 0, self._plain))


class Digest:
    """The digest of the content that `spans` (address, bytes) have when it is made. The memory has to exist while `changed` is
    called. `library`: of a loaded program; `pool`: the threads that share the work. `plain`: as on machines without vectors of
    AES rounds."""

    def __init__(
        self, library: Library, pool: ctypes.c_void_p, spans: Sequence[tuple[int, int]], *, plain: bool = False
    ) -> None:
        self._spans = spans
        self._of = (library, pool)
        self._plain = plain
        self._all = _Blocks(library, pool, spans, plain)
        self._looks = 0
        self._watched: tuple[watch.Watch, _Blocks | None] | None = None
        """(the watched pages, the rest, which each look reads, if there is one); None before pages are watched."""
        self._shared: set[int] = set()
        """Pages at ends of spans in which something else was written: their part of the spans is read."""
        self.bytes = sum(size for _, size in spans)

    def changed(self) -> bool:
        """True if a byte differs from its first value. In memory that is read, one changed word of 32 bits is always seen,
        several with an exception in 2^32 cases; in memory that is watched, every write is."""
        watched = self._watched
        if watched is None:
            self._looks += 1
            return self._begin() if self._looks == LOOKS else self._all.changed()
        pages, blocks = watched
        if not pages.in_doubt():
            return blocks is not None and blocks.changed()
        if shared := pages.shared_ends():
            self._shared.update(shared)
            return self._begin()
        return self._settled(pages, blocks)

    def _begin(self) -> bool:
        """True if reading everything finds a change; if not, pages are watched from here on where the system can."""
        begun = watch.begin(self._spans, self._shared)
        if begun is None:
            self._watched = None
            return self._all.changed()
        pages, rest = begun
        return self._settled(pages, _Blocks(*self._of, rest, self._plain) if rest else None)

    def _settled(self, pages: watch.Watch, blocks: _Blocks | None) -> bool:
        """True if reading everything finds a change; if not, `pages` are out of doubt, and `blocks` is what each look reads."""
        doubts = pages.doubts()
        differs = self._all.changed()
        if doubts is None:
            self._watched = None
        elif not differs:
            pages.settle(doubts)
            self._watched = pages, blocks
        return differs
