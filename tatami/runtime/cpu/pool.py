"""The library that stays in a process while programs are loaded and closed (decision 0053): the thread pools, one per number
of threads, made on first use, and the scratch of every thread that ran a kernel."""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache

from tatami.core.diagnostic import fail
from tatami.core.target import PRESETS
from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.building.library import Library
from tatami.runtime.building.objects import build, load, runtime_units
from tatami.runtime.building.sanitizer import sanitizer_flags
from tatami.runtime.cores import thread_count

SPIN_PAUSES = 2000
"""Number of pauses that a worker spins before it sleeps: some 100 µs."""
_lock = threading.RLock()
_libraries: list[Library] = []
_pools: dict[tuple[int, bool], int] = {}


@lru_cache(maxsize=1)
def runtime_body() -> bytes:
    """The file of the library that stays, for any CPU of this architecture."""
    return build(runtime_units(), PRESETS["cpu:generic"], extra_flags=sanitizer_flags(find_compiler()))


def runtime_library(body: bytes | None = None) -> Library:
    """The library that stays in this process. `body`: its file if it is not loaded yet, in place of a compiled one."""
    with _lock:
        if not _libraries:
            library = load(body or runtime_body(), stays=True)
            library.tatami_pool_create.restype = ctypes.c_void_p
            library.tatami_pool_create.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
            library.tatami_flush_denormals.restype = ctypes.c_int
            library.tatami_flush_denormals.argtypes = (ctypes.c_int,)
            library.tatami_reserve.restype = None
            library.tatami_reserve.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
            library.tatami_sides.restype = ctypes.POINTER(ctypes.c_int64 * 2)
            for of_ranges in (library.tatami_watch, library.tatami_watch_end, library.tatami_written):
                of_ranges.argtypes = (ctypes.c_int64, ctypes.c_void_p)
            _libraries.append(library)
        return _libraries[0]


def load_program(body: bytes, runtime: bytes | None = None, *, keep: bool = False) -> Library:
    """A program's library (`program_units` is in it), connected to the library that stays. `runtime`: the `body` of
    `runtime_library`; `keep`: as in `load`."""
    lender = runtime_library(runtime)
    library = load(body, keep=keep)
    library.tatami_borrow(ctypes.c_void_p(lender.address("tatami_functions")))
    return library


def get_pool(threads: int | None = None, *, flush_denormals: bool = False) -> int:
    """The address of a `tatami_pool` with that many threads (None: as `thread_count` says)."""
    key = (thread_count(threads), flush_denormals)
    library = runtime_library()
    with _lock:
        if key not in _pools:
            address = library.tatami_pool_create(key[0], SPIN_PAUSES, int(flush_denormals))
            if not address:
                raise fail("OutOfMemory", "thread pool", f"no memory for {key[0]} threads", "use fewer threads")
            _pools[key] = address
        return _pools[key]


def reserve(pool: ctypes.c_void_p, caller: int, helper: int) -> None:
    """Allocate this many bytes of scratch, for this thread and for each other one of the pool, so that their pages exist."""
    runtime_library().tatami_reserve(pool, caller, helper)


def last_sides() -> tuple[int, int]:
    """Both sides of the equation of sizes that compiled code checked last in this thread."""
    left, right = runtime_library().tatami_sides().contents
    return left, right
