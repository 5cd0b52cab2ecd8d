import ctypes
import os
import threading

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.runtime.host import thread_count
from tatami.runtime.objects import Unit, build, load
from tatami.runtime.pool import get_pool, runtime_library

TEXT = r"""
#include "pool.h"
#include <stdatomic.h>
#define EXPORT __attribute__((visibility("default")))
typedef struct { int32_t *hits; tatami_pool *pool; _Atomic int64_t calls; } work_t;
static void count(void *context, int64_t begin, int64_t end, int thread) {
    work_t *work = context;
    if (thread < 0 || thread >= work->pool->threads) return;
    for (int64_t i = begin; i < end; i++) __atomic_fetch_add(&work->hits[i], 1, __ATOMIC_RELAXED);
    atomic_fetch_add(&work->calls, 1);
}
EXPORT int64_t cover(tatami_pool *pool, int32_t *hits, int64_t n) {
    work_t work = {.hits = hits, .pool = pool};
    tatami_parallel_for(pool, n, count, &work);
    return work.calls;
}
static void nest(void *context, int64_t begin, int64_t end, int thread) {
    work_t *work = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        work_t inner = {.hits = work->hits + i * 10, .pool = work->pool};
        tatami_parallel_for(work->pool, 10, count, &inner);
    }
}
EXPORT void nested(tatami_pool *pool, int32_t *hits, int64_t n) {
    work_t work = {.hits = hits, .pool = pool};
    tatami_parallel_for(pool, n, nest, &work);
}
EXPORT int64_t many(tatami_pool *pool, int32_t *hits, int64_t n, int64_t times) {
    for (int64_t i = 0; i < times; i++) cover(pool, hits, n);
    return 0;
}
EXPORT int keeps(tatami_pool *pool) {
    char *a = pool->scratch(0, 1000), *b = pool->scratch(1, 1000);
    if (a == NULL || b == NULL || a == b || (uintptr_t)a % 64 != 0) return 1;
    a[999] = 7;
    return pool->scratch(0, 500) != a || a[999] != 7 || pool->scratch(9, 1) != NULL;
}
"""


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    out = load(build((Unit(TEXT),), PRESETS["cpu:generic"]))
    out.cover.restype = ctypes.c_int64
    return out


def pool(threads: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(get_pool(threads))


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 33])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 64, 1000])
def test_every_index_is_visited_once(library: ctypes.CDLL, threads: int, n: int) -> None:
    hits = (ctypes.c_int32 * max(n, 1))()
    library.cover(pool(threads), hits, ctypes.c_int64(n))
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
    library.cover(pool(2), hits, ctypes.c_int64(100))
    child = os.fork()
    if child == 0:
        fresh = (ctypes.c_int32 * 100)()
        library.many(pool(2), fresh, ctypes.c_int64(100), ctypes.c_int64(50))
        os._exit(0 if list(fresh) == [50] * 100 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_scratch_is_kept_and_aligned(library: ctypes.CDLL) -> None:
    assert library.keeps(pool(2)) == 0


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
