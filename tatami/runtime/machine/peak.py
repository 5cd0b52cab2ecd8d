"""The peak rates of this machine: multiply-adds in registers, cycles, reads from memory and from cache.

Each figure is a loop in C that does nothing else. A machine whose cores are shared changes from second to second, so the loops
are called any number of times and the best is the peak."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import msgspec
import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.target import Target
from tatami.runtime.building.library import Library
from tatami.runtime.building.objects import Unit, build, load
from tatami.runtime.machine.host import detect_host

CHAINS = 24
"""Maximum number of independent sums: enough to hide the latency of two multiply-add units."""
OTHERS = 4
"""Number of registers that the sums leave free: the factor, the term, and two for the compiler. With a sum in memory the loop
would not reach the peak."""
COUNT = 20000
"""Rounds per loop, which take some 0.2 ms."""
LOOPS = 10
"""Loops per probe, of which the best counts: a core that wakes reaches its clock within a millisecond."""
READS = 8
"""Number of vectors that the reading loop has in flight."""
TICKS = 16
"""Integer additions per round of the loop that counts cycles: each waits for the one before and takes one cycle."""


class Peaks(msgspec.Struct, frozen=True):
    """Peak rates of all threads together. flops: fp32 operations per second; memory, cache: bytes per second."""

    flops: float
    memory: float
    cache: float


def peak_text(lanes: int, chains: int) -> str:
    """The C text of three loops: `peak` multiplies and adds to `chains` sums, `sweep` reads `n` times READS vectors, `ticks`
    adds integers in one chain."""
    names = [f"c{i}" for i in range(chains)]
    held = ", ".join(f'"+x"(c{i * (chains - 1) // 3})' for i in range(4))
    body = "\n".join(f"    {n} = {n} * x + y;" for n in names)
    total = " + ".join(names)
    reads = "\n".join(f"    t{i} += *(const U *)(p + {i * lanes});" for i in range(READS))
    read = " + ".join(f"t{i}" for i in range(READS))
    tick = '    x += y; __asm__ volatile("" : "+r"(x));'
    ticks = "\n".join([tick] * TICKS)
    return f"""
typedef float V __attribute__((vector_size({4 * lanes})));
typedef V U __attribute__((aligned(4), may_alias));
static float sum(V t) {{
  float r = 0;
  for (int i = 0; i < {lanes}; ++i) r += t[i];
  return r;
}}
__attribute__((visibility("default"))) float peak(long n, float s) {{
  V x = s - (V){{0}}, y = x * 1e-9f;
  V {", ".join(f"{n} = x + {i}" for i, n in enumerate(names))};
  for (long i = 0; i < n; ++i) {{
{body}
    __asm__ volatile("" : {held});
  }}
  return sum({total});
}}
__attribute__((visibility("default"))) float sweep(const float *p, long n, long times) {{
  V {", ".join(f"t{i} = {{0}}" for i in range(READS))};
  for (const float *first = p; times > 0; --times, p = first)
    for (long i = 0; i < n; ++i, p += {READS * lanes}) {{
{reads}
    }}
  return sum({read});
}}
__attribute__((visibility("default"))) long ticks(long n, long y) {{
  long x = y;
  for (long i = 0; i < n; ++i) {{
{ticks}
  }}
  return x;
}}
"""


@dataclass
class Probe:
    """A measurement of `threads` threads together; a call returns their current GFLOP/s."""

    threads: int
    _library: Library = field(init=False, repr=False)
    _lanes: int = field(init=False, repr=False)
    _chains: int = field(init=False, repr=False)
    _pool: ThreadPoolExecutor | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        target = detect_host()
        self._lanes = max(target.vector_bytes // 4, 4)
        self._chains = min(CHAINS, max(4, target.vector_registers - OTHERS))
        self._library = load(build((Unit(peak_text(self._lanes, self._chains), True),), target))
        for function in (self._library.peak, self._library.sweep):
            function.restype = ctypes.c_float
        self._library.ticks.restype = ctypes.c_long
        if self.threads > 1:
            self._pool = ThreadPoolExecutor(self.threads, initializer=_stay, initargs=(_processors(self.threads),))

    @property
    def flops(self) -> float:
        """Number of floating-point operations of one thread's loop."""
        return 2.0 * self._chains * self._lanes * COUNT

    def loop(self, times: int = 1) -> None:
        """Run the multiply-add loop `times` times in this thread."""
        self._library.peak(ctypes.c_long(COUNT * times), ctypes.c_float(0.999))

    def cycles_per_second(self) -> float:
        """The current clock of one core, in Hz."""

        def count() -> None:
            self._library.ticks(ctypes.c_long(COUNT), ctypes.c_long(1))

        return TICKS * COUNT / min(_seconds_of(count) for _ in range(LOOPS))

    def __call__(self) -> float:
        times = 1 if self._pool is None else 10  # long compared with the start of a Python thread's task
        best = min(self._seconds(lambda _: self.loop(times)) for _ in range(LOOPS))
        return self.flops * times * self.threads / best / 1e9

    def bytes_per_second(self, arrays: list[np.ndarray], times: int) -> float:
        """The rate at which each thread reads its own array, `times` times, summed over the threads."""
        rounds = arrays[0].nbytes // (4 * READS * self._lanes)

        def sweep(i: int) -> None:
            self._library.sweep(ctypes.c_void_p(arrays[i].ctypes.data), ctypes.c_long(rounds), ctypes.c_long(times))

        return 4.0 * READS * self._lanes * rounds * times * self.threads / self._seconds(sweep)

    def _seconds(self, work: Callable[[int], None]) -> float:
        if self._pool is None:
            return _seconds_of(lambda: work(0))
        pool = self._pool
        return _seconds_of(lambda: list(pool.map(work, range(self.threads))))


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _processors(threads: int) -> SimpleQueue[int]:
    """A processor for each of these threads, if there are enough: a scheduler may leave two threads that often wait on one."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    queue: SimpleQueue[int] = SimpleQueue()
    for processor in usable[:threads] if threads <= len(usable) else []:
        queue.put(processor)
    return queue


def _stay(processors: SimpleQueue[int]) -> None:
    """Bind the running thread to one of the processors."""
    with contextlib.suppress(Empty, OSError):
        processor = processors.get_nowait()
        os.sched_setaffinity(0, {processor})


def check_measurable(target: Target) -> None:
    """Raise UnknownTarget unless the target is a CPU."""
    if target.kind != "cpu":
        raise fail("UnknownTarget", target.name, "only programs for the CPU are measured", "use target cpu")


def measured_peaks(target: Target, threads: int, tries: int = 20) -> Peaks:
    """The best rates of some tries, in less than half a second. Raises UnknownTarget unless the target is a CPU."""
    check_measurable(target)
    probe = Probe(threads)
    near = [np.ones(max(target.l2_bytes // 2, 1 << 16) // 4, np.float32) for _ in range(threads)]
    far = [np.ones(max(2 * target.l3_bytes, 1 << 24) // threads // 4, np.float32) for _ in range(threads)]
    return Peaks(
        max(probe() for _ in range(tries)) * 1e9,
        max(probe.bytes_per_second(far, 1) for _ in range(8)),
        max(probe.bytes_per_second(near, 50) for _ in range(tries)),
    )
