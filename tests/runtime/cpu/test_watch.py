"""Pages that are watched instead of read: every write is told, and what others may write is read."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tatami.core.target import PRESETS
from tatami.runtime.building.library import Library
from tatami.runtime.building.objects import build, program_units
from tatami.runtime.cpu import digest, watch
from tatami.runtime.cpu.digest import BLOCK, LOOKS, Digest
from tatami.runtime.cpu.pool import get_pool, load_program, runtime_library

PAGE = mmap.PAGESIZE


@cache
def library() -> Library:
    return load_program(build(program_units(), PRESETS["cpu:generic"]))


def taken(array: np.ndarray) -> Digest:
    return Digest(library(), ctypes.c_void_p(get_pool(2)), [(array.ctypes.data, array.nbytes)])


def watched(array: np.ndarray) -> Digest:
    """A digest past the looks that read."""
    made = taken(array)
    assert not any(made.changed() for _ in range(LOOKS))
    return made


def memory(pages: int, seed: int = 0) -> np.ndarray:
    """Private pages of their own, with a start inside the first."""
    of = np.frombuffer(mmap.mmap(-1, pages * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    of[:] = np.random.default_rng(seed).integers(0, 256, of.size, np.uint8)
    return of[100:-50]


available = pytest.mark.skipif(not runtime_library().tatami_watch_open(), reason="this system has no scan of written pages")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that each comparison of digests read."""
    seen: list[int] = []
    compare = digest._Blocks.changed

    def counted(self: digest._Blocks) -> bool:
        seen.append(sum(self._arguments[3][: self._arguments[1]]))
        return compare(self)

    monkeypatch.setattr(digest._Blocks, "changed", counted)
    return seen


@available
def test_what_nobody_wrote_is_not_read(reads: list[int]) -> None:
    array = memory(100)
    made = watched(array)
    assert reads == [array.size] * LOOKS
    assert not made.changed() and reads[LOOKS:] == []
    array[5 * PAGE] ^= 1
    assert made.changed() and made.changed() and reads[LOOKS:] == [array.size] * 2
    array[5 * PAGE] ^= 1
    assert not made.changed() and not made.changed() and reads[LOOKS:] == [array.size] * 3


@available
def test_an_end_in_whose_page_others_write_is_read(reads: list[int]) -> None:
    array = memory(40)
    whole: np.ndarray = array.base  # type: ignore[assignment]
    made = watched(array)
    for _ in range(2):
        whole[3] ^= 1
        assert not made.changed()
    assert reads[LOOKS:] == [array.size, PAGE - 100], "once to find that the end is shared, then its bytes"
    whole[-3] ^= 1
    assert [made.changed(), made.changed()] == [False] * 2 and reads[LOOKS + 2 :] == [array.size, 2 * PAGE - 150]
    for at in (0, 100, PAGE - 101, PAGE - 100, 20 * PAGE, array.size - 1):
        array[at] ^= 1
        assert made.changed(), at
        array[at] ^= 1
        assert not made.changed(), at


@available
def test_short_neighbours_are_watched_together(reads: list[int]) -> None:
    whole = memory(40)
    parts = [whole[at : at + 3000] for at in range(0, whole.size - 3000, 3500)]
    made = Digest(library(), ctypes.c_void_p(get_pool(2)), [(p.ctypes.data, p.nbytes) for p in parts])
    assert not any(made.changed() for _ in range(LOOKS + 1)) and reads[LOOKS:] == []
    assert made._watched is not None and made._watched[0]._count == 1
    for part in parts:
        part[-1] ^= 1
        assert made.changed()
        part[-1] ^= 1
        assert not made.changed()


@available
def test_every_place_that_is_written_is_seen() -> None:
    array = memory(40)
    made = watched(array)
    rng = np.random.default_rng(1)
    for at in [0, PAGE - 101, PAGE - 100, array.size - 1, *rng.integers(0, array.size, 200).tolist()]:
        array[at] ^= 0x10
        assert made.changed(), at
        array[at] ^= 0x10
        assert not made.changed(), at


@available
def test_what_the_system_writes_is_seen(tmp_path: Path) -> None:
    array = memory(40)
    made = watched(array)
    (tmp_path / "bytes").write_bytes(bytes(3))
    with open(tmp_path / "bytes", "rb", buffering=0) as file:
        file.readinto(memoryview(array.data)[7 * PAGE : 7 * PAGE + 3])
    assert made.changed()


@available
@pytest.mark.parametrize("first", [0, 1])
def test_each_of_two_watches_of_one_page_sees_a_write(first: int) -> None:
    array = memory(64)
    both = [watched(array), watched(array[3 * PAGE :])]
    for _ in range(3):
        assert not any(made.changed() for made in both)
        array[20 * PAGE] += 1
        assert both[first].changed() and both[1 - first].changed() and both[first].changed()
        array[20 * PAGE] -= 1
        assert not any(made.changed() for made in both)


@available
def test_a_write_before_another_watch_begins_is_seen() -> None:
    array = memory(64)
    made = watched(array)
    array[20 * PAGE] += 1
    other = watched(array)
    assert made.changed() and not other.changed()


@available
def test_a_forked_child_reads(reads: list[int]) -> None:
    array = memory(64)
    made = watched(array)
    child = os.fork()
    if not child:
        before = made.changed()
        array[20 * PAGE] += 1
        os._exit(0 if (before, made.changed()) == (False, True) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reads.clear()
    assert not made.changed() and not reads  # the parent's pages are watched as before
    array[9 * PAGE] += 1
    assert made.changed()


@available
def test_shared_pages_and_those_of_files_are_read(tmp_path: Path, reads: list[int]) -> None:
    (tmp_path / "weights").write_bytes(bytes(64 * PAGE))
    with open(tmp_path / "weights", "r+b") as file:
        maps = [mmap.mmap(-1, 64 * PAGE), mmap.mmap(file.fileno(), 0), mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)]
    for of in maps:
        array = np.frombuffer(of, np.uint8)
        made = watched(array)
        reads.clear()
        assert not made.changed() and reads == [array.size]
    child = os.fork()
    if not child:
        maps[0][5 * PAGE] = 1
        os._exit(0)
    os.waitpid(child, 0)
    shared = np.frombuffer(maps[0], np.uint8)
    assert shared[5 * PAGE] == 1


@available
def test_memory_that_is_mapped_anew_is_read() -> None:
    of = mmap.mmap(-1, 64 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(of, np.uint8)
    made = watched(array)
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long],
    )
    fixed = 0x10
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed
    assert libc.mmap(array.ctypes.data, array.size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == array.ctypes.data
    assert not made.changed()  # zeros again
    array[33 * PAGE] = 1
    assert made.changed()


@available
def test_writers_and_lookers_in_threads() -> None:
    """A check that begins after a write has ended reports it, whatever other threads check."""
    array = memory(64)
    stop = threading.Event()
    missed: list[int] = []

    def look_beside(other: Digest) -> None:
        while not stop.is_set():
            if other.changed():
                other = taken(array[PAGE:])

    made = watched(array)
    beside = [threading.Thread(target=look_beside, args=(watched(array[PAGE:]),)) for _ in range(2)]
    for thread in beside:
        thread.start()
    shared: list[bool] = []
    for k in range(300):
        at = 2 * PAGE + 97 * k % (60 * PAGE)
        array[at] ^= 1
        thread = threading.Thread(target=lambda: shared.append(made.changed()))
        thread.start()
        if not made.changed():
            missed.append(k)
        thread.join()
        array[at] ^= 1
        assert not made.changed()
    stop.set()
    for thread in beside:
        thread.join()
    assert not missed and shared == [True] * 300


@available
def test_a_watch_that_is_gone_ends_with_the_next() -> None:
    arrays = [memory(64), memory(64, 1)]
    made = watched(arrays[0])
    assert made._watched is not None
    gone = made._watched[0]._ranges
    assert not runtime_library().tatami_written(1, gone)
    del made
    assert not watched(arrays[1]).changed()
    assert all(ranges is not gone for _, ranges in watch._watches.values())
    assert runtime_library().tatami_written(1, gone)  # as of memory that nobody protected


@available
def test_a_mark_that_is_cleared_without_a_doubt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: whoever protects pages anew forgets the other watches."""
    array = memory(64)
    one, other = watched(array), watched(array)
    monkeypatch.setattr(watch, "_watches", {})
    array[20 * PAGE] += 1
    assert one.changed() and not other.changed()


def test_without_watching(monkeypatch: pytest.MonkeyPatch, reads: list[int]) -> None:
    monkeypatch.setenv("TATAMI_WATCH", "0")
    array = memory(64)
    made = watched(array)
    assert not made.changed() and reads == [array.size] * (LOOKS + 1)


def test_watched_pages_and_the_rest() -> None:
    least, pages = watch.LEAST_PAGES * PAGE, watch.watched_pages
    assert pages([(0, least), (2 * least, least - PAGE)]) == ([(0, least)], [(2 * least, least - PAGE)])
    assert pages([(PAGE - 1, least), (PAGE + least, 9)]) == ([(0, least + 2 * PAGE)], [])
    assert pages([(10 * PAGE - 1, BLOCK)], [9 * PAGE]) == ([(10 * PAGE, BLOCK)], [(10 * PAGE - 1, 1)])
    shared = [9 * PAGE, 10 * PAGE + 2 * least]
    ranges, rest = pages([(10 * PAGE - 1, 4 * least + PAGE)], shared)
    assert ranges == [(10 * PAGE, 2 * least), (11 * PAGE + 2 * least, 2 * least)]
    assert rest == [(10 * PAGE - 1, 1), (10 * PAGE + 2 * least, PAGE)]


def test_every_byte_is_watched_or_read() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        cuts = np.sort(rng.choice(90 * PAGE, 2 * int(rng.integers(1, 8)), replace=False))
        spans = [(int(a), int(b - a)) for a, b in zip(cuts[::2], cuts[1::2])]
        ends = [e // PAGE * PAGE for a, n in spans for e in (a, a + n - 1)]
        shared = [e for e in ends if rng.random() < 0.3]
        ranges, rest = watch.watched_pages(spans, shared)
        seen = np.zeros(91 * PAGE, int)
        for at, size in ranges:
            assert at % PAGE == size % PAGE == 0 and size >= watch.LEAST_PAGES * PAGE
            assert not any(at <= e < at + size for e in shared)
            seen[at : at + size] += 1
        for at, size in rest:
            seen[at : at + size] += 1
        for at, size in spans:
            assert (seen[at : at + size] == 1).all()
