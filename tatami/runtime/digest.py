"""Whether ranges of memory are as they were, every byte of them looked at (`c/runtime_text/digest.c`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tatami.runtime.library import Library

BLOCK = 1 << 17
"""Bytes per digest: work for a thread that is long against its start, and many blocks in one weight."""


class Digest:
    """Digests of `spans` (address, bytes), taken now. The memory has to be there while `changed` is asked. `library`: of a
    loaded program; `pool`: the threads that share the work. `plain`: as on machines without vectors of AES rounds."""

    def __init__(
        self, library: Library, pool: ctypes.c_void_p, spans: Sequence[tuple[int, int]], *, plain: bool = False
    ) -> None:
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
        self.bytes = sum(size for _, size in spans)

    def changed(self) -> bool:
        """True if a byte differs from what it was. One word of 32 bits that changed is always seen, several together but for
        one case in 2^32."""
        return bool(self._call(*self._arguments, 0, self._plain))
