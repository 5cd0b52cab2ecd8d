"""The process's thread pools: one per number of threads, made on first use, kept until the process ends."""

from __future__ import annotations

import ctypes
import threading

from tatami.core.diagnostic import fail
from tatami.core.target import PRESETS
from tatami.runtime.host import thread_count
from tatami.runtime.objects import Unit, build, load, runtime_text

SPIN_PAUSES = 2000
"""Pauses a worker spins before it sleeps: some 100 µs."""
_lock = threading.Lock()
_libraries: list[ctypes.CDLL] = []
_pools: dict[tuple[int, bool], int] = {}


def runtime_object() -> bytes:
    """pool.c, compiled for any CPU."""
    return build((Unit(runtime_text("pool.c")),), PRESETS["cpu:generic"])


def runtime_library(body: bytes | None = None) -> ctypes.CDLL:
    """The runtime, loaded once. body: its object, for a machine without a C compiler; the first use decides."""
    if not _libraries:
        _libraries.append(_load(runtime_object() if body is None else body))
    return _libraries[0]


def _load(body: bytes) -> ctypes.CDLL:
    library = load(body)
    library.tatami_pool_create.restype = ctypes.c_void_p
    library.tatami_pool_create.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
    library.tatami_flush_denormals.restype = ctypes.c_int
    library.tatami_flush_denormals.argtypes = (ctypes.c_int,)
    return library


def get_pool(threads: int | None = None, *, flush_denormals: bool = False, runtime: bytes | None = None) -> int:
    """The address of a `tatami_pool` with that many threads (None: TATAMI_NUM_THREADS, else the usable cores)."""
    key = (thread_count(threads), flush_denormals)
    with _lock:
        if key not in _pools:
            address = runtime_library(runtime).tatami_pool_create(key[0], SPIN_PAUSES, int(flush_denormals))
            if not address:
                raise fail("OutOfMemory", "thread pool", f"no memory for {key[0]} threads", "use fewer threads")
            _pools[key] = address
        return _pools[key]
