"""Whether ranges of memory are as they were (`c/runtime_text/digest.c`, `watch.c`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tatami.runtime import watch
from tatami.runtime.library import Library

BLOCK = 1 << 17
"""Bytes per digest: work for a thread that is long against its start, and many blocks in one weight."""
LOOKS = 4
"""Looks that read the memory and find it unchanged before its pages are watched: protecting pages that each step of a training
writes costs a fault per page."""


class _Blocks:
    """Digests of blocks of memory, one of 64 bits for each, made by the threads of `pool`."""

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
    """The content of `spans` (address, bytes) as it is now. The memory has to be there while `changed` is asked. `library`: of a
    loaded program; `pool`: the threads that share the work. `plain`: as on machines without vectors of AES rounds."""

    def __init__(
        self, library: Library, pool: ctypes.c_void_p, spans: Sequence[tuple[int, int]], *, plain: bool = False
    ) -> None:
        self._spans = spans
        self._of = (library, pool)
        self._plain = plain
        self._all = _Blocks(library, pool, spans, plain)
        self._looks = 0
        self._watched: tuple[watch.Watch, _Blocks] | None = None
        """Pages that are watched, and what is read in each look beside them."""
        self.bytes = sum(size for _, size in spans)

    def changed(self) -> bool:
        """True if a byte differs from what it was. Of what is read, one word of 32 bits that changed is always seen, several
        together but for one case in 2^32; of what is watched, every write is."""
        watched = self._watched
        if watched is None:
            return self._read_or_begin()
        pages, beside = watched
        if not pages.in_doubt():
            return beside.changed()
        doubts = pages.doubts()
        if doubts is None:
            self._watched = None
        differs = self._all.changed()
        if doubts is not None and not differs:
            pages.settle(doubts)
        return differs

    def _read_or_begin(self) -> bool:
        """Read all; where that found no change LOOKS times, the pages are watched from here on."""
        self._looks += 1
        begun = watch.begin(self._spans) if self._looks == LOOKS else None
        if begun is None:
            return self._all.changed()
        pages, rest = begun
        beside, doubts = _Blocks(*self._of, rest, self._plain), pages.doubts()
        differs = self._all.changed()
        if doubts is not None and not differs:
            pages.settle(doubts)
            self._watched = pages, beside
        return differs
