"""Pages of memory for which the kernel records writes, so that nobody has to read them (`watch.c`, decision 0041).

A page has one mark for all watches. Whoever sees a write protects the pages again, which clears the mark, so every other watch
is put in doubt first; in doubt the memory is read. Only private memory that is not part of a file is watched: other processes
change shared pages, and whoever writes a file changes its pages, without a fault in this process. A device's writes to pages
that it held before they were protected are not seen. TATAMI_WATCH=0 watches nothing.

A span is watched with the pages that hold its ends, although other data lies in them too: reading the ends of many small spans
at each call takes longer than one scan of adjacent pages. An end in whose page something else is written is read instead
(`shared_ends`)."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path

from tatami.runtime.building.library import Library
from tatami.runtime.cpu.pool import runtime_library

LEAST_PAGES = 16
"""Minimum number of pages of a range that is watched: 64 KiB are read in the time of a scan or two."""
_lock = threading.Lock()
_watches: dict[int, tuple[weakref.ref[Watch], ctypes.Array[ctypes.c_uint64]]] = {}


class Watch:
    """Whole pages (address, bytes) of memory that stays mapped; made by `begin`, in doubt at first."""

    def __init__(self, library: Library, ranges: Sequence[tuple[int, int]], ends: Sequence[int]) -> None:
        self._count = len(ranges)
        self._ends = ends
        self._ranges = (ctypes.c_uint64 * (2 * len(ranges)))(*(n for pair in ranges for n in pair))
        self._library = library
        self._written = library.tatami_written
        self._doubts = 1
        self._settled = 0

    def in_doubt(self) -> bool:
        """True if a page was written since it was protected, or if only reading the memory can tell."""
        written = self._written(self._count, self._ranges)
        return bool(written) or self._settled != self._doubts  # in this order: a doubt is counted before a mark is cleared

    def shared_ends(self) -> list[int]:
        """The written pages among those that hold ends of spans, and maybe other data; none if another watch may have
        cleared or ended a mark. Asked before `doubts` clears the marks."""
        page = mmap.PAGESIZE
        found = [at for at in self._ends if self._written(1, (ctypes.c_uint64 * 2)(at, page))]
        return found if self._settled == self._doubts else []

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
        _doubt_all(self)
        return bool(self._library.tatami_watch(self._count, self._ranges))


def begin(spans: Sequence[tuple[int, int]], shared: Collection[int] = ()) -> tuple[Watch, list[tuple[int, int]]] | None:
    """(a watch of the pages of `spans` (address, bytes), the rest that has to be read: spans too short to be watched, and
    what lies in pages of `shared`). None if no page can be watched."""
    ranges, rest = watched_pages(spans, shared)
    if not ranges or not is_possible():
        return None
    library = runtime_library()
    with _lock:
        for key, (of, gone) in list(_watches.items()):
            if of() is None:
                _doubt_all(None)  # a page of it may be one of another watch
                library.tatami_watch_end(len(gone) // 2, gone)
                del _watches[key]
        if not all(are_private(ranges)):
            return None
        watch = Watch(library, ranges, _ends(spans, ranges))
        if not watch._protect():
            return None
        _watches[id(watch._ranges)] = weakref.ref(watch), watch._ranges
        return watch, rest


def _doubt_all(but: Watch | None) -> None:
    for other, _ in _watches.values():
        if (of := other()) is not None and of is not but:
            of._doubts += 1


def is_possible() -> bool:
    """True if pages of this process can be watched: Linux 6.7, `userfaultfd` allowed, and TATAMI_WATCH is not 0."""
    if os.environ.get("TATAMI_WATCH") == "0":
        return False
    with _lock:
        return bool(runtime_library().tatami_watch_open())


def can_watch(spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Per span (address, bytes): True if its pages can be watched."""
    return are_private([_pages(span) for span in spans]) if is_possible() else [False] * len(spans)


def _pages(span: tuple[int, int]) -> tuple[int, int]:
    """(address, bytes) of the pages that hold a span."""
    (at, size), page = span, mmap.PAGESIZE
    first = at // page * page
    return first, -(-(at + size) // page) * page - first


def watched_pages(
    spans: Sequence[tuple[int, int]], shared: Collection[int] = ()
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(ranges (address, bytes) of at least LEAST_PAGES pages that hold `spans`, without the pages at the addresses `shared`; the
    parts of spans outside them). Adjacent pages are one range."""
    page = mmap.PAGESIZE
    merged: list[tuple[int, int]] = []
    for start, size in sorted(map(_pages, spans)):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], start + size)
        else:
            merged.append((start, start + size))
    pieces: list[tuple[int, int]] = []
    for start, end in merged:
        for at in sorted(a for a in shared if start <= a < end):
            pieces.append((start, at))
            start = at + page
        pieces.append((start, end))
    ranges = [(start, end) for start, end in pieces if end - start >= LEAST_PAGES * page]
    rest = []
    for at, size in spans:
        for start, end in ranges:
            if at < end and start < at + size:
                if at < start:
                    rest.append((at, start - at))
                size, at = max(0, at + size - end), max(at, end)
        if size > 0:
            rest.append((at, size))
    return [(start, end - start) for start, end in ranges], rest


def _ends(spans: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """The addresses of the pages of `ranges` that hold the first or the last byte of a span."""
    page = mmap.PAGESIZE
    pages = {end // page * page for at, size in spans for end in (at, at + size - 1)}
    return [p for p in sorted(pages) if any(at <= p < at + size for at, size in ranges)]


def are_private(ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """Per range: True if every page of it is mapped for this process alone and is not part of a file."""
    private: list[tuple[int, int]] = []
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return [False] * len(ranges)
    for line in lines:
        bounds, access, _, _, inode, *_ = line.split()
        start, end = (int(n, 16) for n in bounds.split("-"))
        if access[3] == "p" and inode == "0":
            if private and private[-1][1] == start:
                start = private.pop()[0]
            private.append((start, end))
    return [any(start <= at and at + size <= end for start, end in private) for at, size in ranges]
