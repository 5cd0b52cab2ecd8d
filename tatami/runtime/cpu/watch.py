"""Pages of memory for which the kernel records writes, so that nobody has to read them (`watch.c`, decision 0041).

A page has one mark for all watches. Whoever sees a write protects the pages again, which clears the mark, so every other watch
is put in doubt first; in doubt the memory is read. Only private memory that is not part of a file is watched: other processes
change shared pages, and whoever writes a file changes its pages, without a fault in this process. A device's writes to pages
that it held before they were protected are not seen. TATAMI_WATCH=0 watches nothing."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

from tatami.runtime.building.library import Library
from tatami.runtime.cpu.pool import runtime_library

LEAST_PAGES = 16
"""Minimum number of pages of a range that is watched: 64 KiB are read in the time of a scan or two."""
_lock = threading.Lock()
_watches: dict[int, tuple[weakref.ref[Watch], ctypes.Array[ctypes.c_uint64]]] = {}


class Watch:
    """Whole pages (address, bytes) of memory that stays mapped; made by `begin`, in doubt at first."""

    def __init__(self, library: Library, ranges: Sequence[tuple[int, int]]) -> None:
        self._count = len(ranges)
        self._ranges = (ctypes.c_uint64 * (2 * len(ranges)))(*(n for pair in ranges for n in pair))
        self._library = library
        self._written = library.tatami_written
        self._doubts = 1
        self._settled = 0

    def in_doubt(self) -> bool:
        """True if a page was written since it was protected, or if only reading the memory can tell."""
        written = self._written(self._count, self._ranges)
        return bool(written) or self._settled != self._doubts  # in this order: a doubt is counted before a mark is cleared

    def doubts(self) -> int | None:
        """The number of doubts that reading the memory after this call settles; later writes are marked. None if these pages
        cannot be watched."""
        with _lock:
            if self._written(self._count, self._ranges) and not self._protect():
                return None
            return self._doubts

    def settle(self, doubts: int) -> None:
        """Record that the memory was read after `doubts` returned this number, and is unchanged."""
        self._settled = max(self._settled, doubts)

    def _protect(self) -> bool:
        self._doubts += 1
        for other, _ in _watches.values():
            if (of := other()) is not None and of is not self:
                of._doubts += 1
        return bool(self._library.tatami_watch(self._count, self._ranges))


def begin(spans: Sequence[tuple[int, int]]) -> tuple[Watch, list[tuple[int, int]]] | None:
    """(a watch of the whole pages of `spans` (address, bytes), the rest that has to be read: short spans, and the ends of
    others). None if no page can be watched."""
    ranges, rest = whole_pages(spans)
    if not ranges or os.environ.get("TATAMI_WATCH") == "0":
        return None
    library = runtime_library()
    with _lock:
        for key, (of, gone) in list(_watches.items()):
            if of() is None:
                library.tatami_watch_end(len(gone) // 2, gone)
                del _watches[key]
        if not library.tatami_watch_open() or not all_private(ranges):
            return None
        watch = Watch(library, ranges)
        if not watch._protect():
            return None
        _watches[id(watch._ranges)] = weakref.ref(watch), watch._ranges
        return watch, rest


def _forked() -> None:
    """Forget the parent's watches in a child, and its lock, which another thread of the parent may have held."""
    global _lock
    _lock = threading.Lock()
    _watches.clear()


os.register_at_fork(after_in_child=_forked)


def whole_pages(spans: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(the pages (address, bytes) inside spans of at least LEAST_PAGES, the rest of all spans)."""
    page = mmap.PAGESIZE
    ranges, rest = [], []
    for at, size in spans:
        first, last = -(-at // page) * page, (at + size) // page * page
        if last - first < LEAST_PAGES * page:
            rest.append((at, size))
            continue
        ranges.append((first, last - first))
        rest += [(start, end - start) for start, end in ((at, first), (last, at + size)) if end > start]
    return ranges, rest


def all_private(ranges: Sequence[tuple[int, int]]) -> bool:
    """True if every page of `ranges` is mapped for this process alone and is not part of a file."""
    private: list[tuple[int, int]] = []
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        bounds, access, _, _, inode, *_ = line.split()
        start, end = (int(n, 16) for n in bounds.split("-"))
        if access[3] == "p" and inode == "0":
            if private and private[-1][1] == start:
                start = private.pop()[0]
            private.append((start, end))
    return all(any(start <= at and at + size <= end for start, end in private) for at, size in ranges)
