import ctypes
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.runtime.building.objects import Unit, build, program_units
from tatami.runtime.cores import thread_count
from tatami.runtime.cpu.pool import get_pool, load_program, reserve, runtime_library

TEXT = r"""
#include "tatami.h"
#include <stdatomic.h>
#define EXPORT __attribute__((visibility("default")))
typedef struct { int32_t *hits; tatami_pool *pool; int64_t grain; _Atomic int64_t calls, small; } work_t;
static int count(void *context, int64_t begin, int64_t end) {
    work_t *work = context;
    for (int64_t i = begin; i < end; i++) __atomic_fetch_add(&work->hits[i], 1, __ATOMIC_RELAXED);
    atomic_fetch_add(&work->calls, 1);
    if (end - begin < work->grain) atomic_fetch_add(&work->small, 1);
    return begin <= 77 && 77 < end ? 5 : 0;
}
EXPORT int64_t cover(tatami_pool *pool, int32_t *hits, int64_t n, int64_t grain) {
    work_t work = {.hits = hits, .pool = pool, .grain = grain};
    int fault = tatami_parallel_for(pool, n, grain, count, &work);
    return fault + (n >= grain && work.small ? 100 : 0);
}
static int nest(void *context, int64_t begin, int64_t end) {
    work_t *work = context;
    for (int64_t i = begin; i < end; i++) {
        work_t inner = {.hits = work->hits + i * 10, .pool = work->pool};
        tatami_parallel_for(work->pool, 10, 1, count, &inner);
    }
    return 0;
}
EXPORT void nested(tatami_pool *pool, int32_t *hits, int64_t n) {
    work_t work = {.hits = hits, .pool = pool};
    tatami_parallel_for(pool, n, 1, nest, &work);
}
EXPORT void many(tatami_pool *pool, int32_t *hits, int64_t n, int64_t times) {
    for (int64_t i = 0; i < times; i++) cover(pool, hits, n, 1);
}
EXPORT int stack(void) {
    for (int round = 0; round < 3; round++) {
        size_t bottom = tatami_mark();
        char *a = tatami_scratch(1000), *b = tatami_scratch(300000), *empty = tatami_scratch(0);
        if (!a || !b || !empty || a == b || (uintptr_t)a % 64 || (uintptr_t)b % 64) return 1;
        a[999] = 7;
        b[299999] = 8;
        size_t mark = tatami_mark();
        char *c = tatami_scratch(2000000);
        if (!c) return 2;
        c[1999999] = 9;
        tatami_release(mark);
        char *d = tatami_scratch(500);
        if (!d || a[999] != 7 || b[299999] != 8) return 3;
        d[499] = 1;
        if (b[299999] != 8) return 4;
        tatami_release(bottom);
    }
    return tatami_scratch(-1) != NULL || tatami_scratch(INT64_MAX) != NULL;
}
typedef struct { int64_t helper; int threads; _Atomic int present, split; } meeting_t;
static int two_halves_are_one_block(int64_t bytes) {
    size_t bottom = tatami_mark();
    char *a = tatami_scratch(bytes / 2), *b = tatami_scratch(bytes / 2);
    tatami_release(bottom);
    return b == a + bytes / 2;
}
static int meet(void *context, int64_t begin, int64_t end) {
    meeting_t *x = context;
    if (!two_halves_are_one_block(x->helper)) atomic_fetch_add(&x->split, 1);
    atomic_fetch_add(&x->present, 1);
    while (end - begin == 1 && atomic_load(&x->present) < x->threads) tatami_mark();
    return 0;
}
EXPORT int64_t split_blocks(tatami_pool *pool, int64_t caller, int64_t helper) {
    meeting_t x = {.helper = helper, .threads = tatami_threads(pool)};
    tatami_parallel_for(pool, x.threads, 1, meet, &x);
    return x.split + 100 * !two_halves_are_one_block(caller);
}
"""


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    out = load_program(build((Unit(TEXT), *program_units()), PRESETS["cpu:generic"]))
    out.cover.restype = ctypes.c_int64
    return out


def pool(threads: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(get_pool(threads))


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 33])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 64, 1000])
def test_every_index_is_visited_once(library: ctypes.CDLL, threads: int, n: int) -> None:
    hits = (ctypes.c_int32 * max(n, 1))()
    assert library.cover(pool(threads), hits, ctypes.c_int64(n), ctypes.c_int64(1)) == (5 if n > 77 else 0)
    assert list(hits)[:n] == [1] * n


def test_no_region_is_lost_among_many(library: ctypes.CDLL) -> None:
    hits = (ctypes.c_int32 * 8)()
    library.many(pool(3), hits, ctypes.c_int64(8), ctypes.c_int64(2000))
    assert list(hits) == [2000] * 8


def test_nested_regions_run_serially(library: ctypes.CDLL) -> None:
    hits = (ctypes.c_int32 * 200)()
    library.nested(pool(2), hits, ctypes.c_int64(20))
    assert list(hits) == [1] * 200


def test_concurrent_callers_share_a_pool(library: ctypes.CDLL) -> None:
    blocks = [(ctypes.c_int32 * 100)() for _ in range(4)]
    callers = [
        threading.Thread(target=library.many, args=(pool(2), b, ctypes.c_int64(100), ctypes.c_int64(200))) for b in blocks
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(list(b) == [200] * 100 for b in blocks)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_workers_again(library: ctypes.CDLL) -> None:
    hits = (ctypes.c_int32 * 100)()
    library.cover(pool(2), hits, ctypes.c_int64(100), ctypes.c_int64(1))
    child = os.fork()
    if child == 0:
        fresh = (ctypes.c_int32 * 100)()
        library.many(pool(2), fresh, ctypes.c_int64(100), ctypes.c_int64(50))
        os._exit(0 if list(fresh) == [50] * 100 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def worker() -> Iterator[tuple[ctypes.c_void_p, int]]:
    """A pool of its own, and the number of its one worker's thread."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one processor, or no affinity")
    runtime = runtime_library()
    others = set(os.listdir("/proc/self/task"))
    own = ctypes.c_void_p(runtime.tatami_pool_create(2, 2000, 0))
    (thread,) = (int(task) for task in set(os.listdir("/proc/self/task")) - others)
    yield own, thread
    runtime.tatami_pool_destroy(own)


def processor() -> int:
    number: int = ctypes.CDLL(None).sched_getcpu()
    return number


def test_a_worker_that_was_seen_with_the_caller_is_parted_from_it(
    library: ctypes.CDLL, worker: tuple[ctypes.c_void_p, int]
) -> None:
    own, thread = worker
    usable, least = os.sched_getaffinity(0), (ctypes.c_int64(64), ctypes.c_int64(64))
    library.split_blocks(own, *least)
    for _ in range(200):  # the caller may be moved between the two calls
        here = processor()
        os.sched_setaffinity(thread, {here})
        library.split_blocks(own, *least)
        library.split_blocks(own, *least)
        if os.sched_getaffinity(thread) == usable - {here}:
            return
    pytest.fail("the worker stays where the caller is")


def test_a_worker_that_is_woken_is_kept_from_the_caller(library: ctypes.CDLL, worker: tuple[ctypes.c_void_p, int]) -> None:
    own, thread = worker
    for _ in range(5):  # the caller may be moved meanwhile
        time.sleep(0.02)  # the worker sleeps after a tenth of a millisecond
        before = processor()
        library.cover(own, (ctypes.c_int32 * 8)(), ctypes.c_int64(8), ctypes.c_int64(1))
        if processor() == before and os.sched_getaffinity(thread) == os.sched_getaffinity(0) - {before}:
            return
    pytest.fail("the worker may be woken where the caller is")


@pytest.mark.parametrize("grain", [1, 3, 40, 100, 1000])
def test_no_range_is_smaller_than_the_grain(library: ctypes.CDLL, grain: int) -> None:
    hits = (ctypes.c_int32 * 100)()
    assert library.cover(pool(3), hits, ctypes.c_int64(100), ctypes.c_int64(grain)) == 5
    assert list(hits) == [1] * 100


def test_scratch_is_a_stack_of_aligned_blocks(library: ctypes.CDLL) -> None:
    assert library.stack() == 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_is_reserved_is_one_block_in_every_thread(library: ctypes.CDLL, threads: int) -> None:
    library.split_blocks.restype = ctypes.c_int64
    own = ctypes.c_void_p(runtime_library().tatami_pool_create(threads, 2000, 0))

    def split(caller: int, helper: int) -> int:
        found: int = library.split_blocks(own, ctypes.c_int64(caller), ctypes.c_int64(helper))
        return found

    def reserved_and_more() -> tuple[int, int]:
        reserve(own, threads << 22, threads << 20)
        return split(threads << 22, threads << 20), split(threads << 23, threads << 21)

    with ThreadPoolExecutor(1) as fresh:  # a thread without scratch: it has one of all programs
        assert fresh.submit(reserved_and_more).result() == (0, 100 + threads - 1)
    runtime_library().tatami_pool_destroy(own)


def test_denormals_are_kept_unless_asked() -> None:
    runtime = runtime_library()
    assert runtime.tatami_flush_denormals(1) == 0
    assert runtime.tatami_flush_denormals(0) == 1


def test_the_environment_sets_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_NUM_THREADS", "3")
    assert thread_count() == 3
    assert thread_count(5) == 5
    monkeypatch.setenv("TATAMI_NUM_THREADS", "many")
    with pytest.raises(TatamiError, match="TATAMI_NUM_THREADS"):
        thread_count()
