"""How many threads compute: what a caller says, else TATAMI_NUM_THREADS, else the cores that this process may use."""

from __future__ import annotations

import os

from tatami.core.diagnostic import fail


def thread_count(threads: int | None = None) -> int:
    """`threads`, else TATAMI_NUM_THREADS, else the cores that this process may use."""
    if threads is None:
        text = os.environ.get("TATAMI_NUM_THREADS", "").strip()
        if not text:
            return usable_cores()
        if not text.isdigit():
            raise fail(
                "InvalidAttribute",
                "TATAMI_NUM_THREADS",
                f"{text[:40]!r} is not a number of threads",
                "use a number from 1 to 1024",
            )
        threads = int(text)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise fail("InvalidAttribute", "threads", f"{threads!r:.80} threads", "use a number from 1 to 1024")
    return threads


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
