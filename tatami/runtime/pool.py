"""The process's thread pools: one per number of threads, made on first use, kept until the process ends."""

from __future__ import annotations

import ctypes
import threading

from tatami.core.diagnostic import fail
from tatami.core.target import PRESETS
from tatami.runtime.host import thread_count
from tatami.runtime.objects import build, load, runtime_units

SPIN_PAUSES = 2000
"""Pauses a worker spins before it sleeps: some 100 µs."""
_lock = threading.Lock()
_libraries: list[ctypes.CDLL] = []
_pools: dict[tuple[int, bool], int] = {}


def runtime_library(library: ctypes.CDLL | None = None) -> ctypes.CDLL:
    """Where pools come from: the object of the first program that asked, since each is linked with pool.c; without one, pool.c
    alone, compiled for any CPU."""
    if not _libraries:
        _libraries.append(_declared(library or load(build(runtime_units(), PRESETS["cpu:generic"]))))
    return _libraries[0]


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    library.tatami_pool_create.restype = ctypes.c_void_p
    library.tatami_pool_create.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
    library.tatami_flush_denormals.restype = ctypes.c_int
    library.tatami_flush_denormals.argtypes = (ctypes.c_int,)
    return library


def get_pool(threads: int | None = None, *, flush_denormals: bool = False, library: ctypes.CDLL | None = None) -> int:
    """The address of a `tatami_pool` with that many threads (None: TATAMI_NUM_THREADS, else the usable cores). `library`: of the
    program that it is for."""
    key = (thread_count(threads), flush_denormals)
    with _lock:
        if key not in _pools:
            address = runtime_library(library).tatami_pool_create(key[0], SPIN_PAUSES, int(flush_denormals))
            if not address:
                raise fail("OutOfMemory", "thread pool", f"no memory for {key[0]} threads", "use fewer threads")
            _pools[key] = address
        return _pools[key]
