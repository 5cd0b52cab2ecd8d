"""The machine's own multiply-add rate, measured beside everything else: a loop in registers that touches no memory."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tatami.runtime.host import detect_host
from tatami.runtime.objects import Unit, build, load

CHAINS = 24
"""Independent sums: enough to hide the latency of two multiply-add units."""
COUNT = 20000
"""Rounds of one probe: some 0.2 ms."""


def peak_text(lanes: int) -> str:
    names = [f"c{i}" for i in range(CHAINS)]
    body = "\n".join(f"    {n} = {n} * x + y;" for n in names)
    total = " + ".join(names)
    return f"""
typedef float V __attribute__((vector_size({4 * lanes})));
__attribute__((visibility("default"))) float peak(long n, float s) {{
  V x = s - (V){{0}}, y = x * 1e-9f;
  V {", ".join(f"{n} = x + {i}" for i, n in enumerate(names))};
  for (long i = 0; i < n; ++i) {{
{body}
    __asm__ volatile("" : "+x"(c0), "+x"(c7), "+x"(c15), "+x"(c23));
  }}
  V t = {total};
  float r = 0;
  for (int i = 0; i < {lanes}; ++i) r += t[i];
  return r;
}}
"""


@dataclass
class Probe:
    """Calling it gives GFLOP/s of `threads` threads together, now."""

    threads: int
    _library: Any = field(init=False, repr=False)
    _lanes: int = field(init=False, repr=False)
    _pool: ThreadPoolExecutor | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        target = detect_host()
        self._lanes = max(target.vector_bytes // 4, 4)
        self._library = load(build((Unit(peak_text(self._lanes), True),), target))
        self._library.peak.restype = ctypes.c_float
        if self.threads > 1:
            self._pool = ThreadPoolExecutor(self.threads)

    @property
    def flops(self) -> float:
        """Floating-point operations of one thread's loop."""
        return 2.0 * CHAINS * self._lanes * COUNT

    def loop(self, times: int = 1) -> None:
        self._library.peak(ctypes.c_long(COUNT * times), ctypes.c_float(0.999))

    def __call__(self) -> float:
        if self._pool is None:
            began = time.perf_counter()
            self.loop()
            return self.flops / (time.perf_counter() - began) / 1e9
        times = 10  # long beside the start of a Python thread's task
        began = time.perf_counter()
        list(self._pool.map(self.loop, [times] * self.threads))
        return self.flops * times * self.threads / (time.perf_counter() - began) / 1e9
