"""How many threads compute: what a caller says, else TATAMI_NUM_THREADS, else OMP_NUM_THREADS, else the cores that this process
may use by its affinity and the quotas of its control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from tatami.core.diagnostic import fail

CGROUPS = Path("/sys/fs/cgroup")
"""Folder of the control groups."""
MEMBERSHIP = Path("/proc/self/cgroup")
"""The control groups of this process: lines of number, controllers and path."""


def thread_count(threads: int | None = None) -> int:
    """`threads`, else the number of the environment, else the cores that this process may use."""
    if threads is None:
        threads = environment_threads()
        if threads is None:
            return usable_cores()
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise fail("InvalidAttribute", "threads", f"{threads!r:.80} threads", "use a number from 1 to 1024")
    return threads


def environment_threads() -> int | None:
    """The number of TATAMI_NUM_THREADS, which is checked; else the first number of OMP_NUM_THREADS, where any text but a
    number from 1 to 1024 counts as absent, as for OpenMP; None without either."""
    text = os.environ.get("TATAMI_NUM_THREADS", "").strip()
    if text:
        if not (text.isascii() and text.isdigit()):
            raise fail(
                "InvalidAttribute",
                "TATAMI_NUM_THREADS",
                f"{text[:40]!r} is not a number of threads",
                "use a number from 1 to 1024",
            )
        return int(text[:5])
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    known = first.isascii() and first.isdigit() and len(first) < 5 and 1 <= int(first) <= 1024
    return int(first) if known else None


def usable_cores() -> int:
    """The number of cores that this process may use: those of its affinity, and at most its quota of processor time, rounded
    up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processor_quota()
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def processor_quota(membership: Path = MEMBERSHIP, root: Path = CGROUPS) -> float | None:
    """The least quota of the control groups that hold this process, in processors; None without one."""
    try:
        lines = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found: list[float] = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found += _quotas(root, path, _quota_of_version_2)
        elif "cpu" in controllers.split(","):
            for folder in (root / controllers, root / "cpu"):
                found += _quotas(folder, path, _quota_of_version_1)
    return min(found, default=None)


def _quotas(root: Path, path: str, read: Callable[[Path], float | None]) -> list[float]:
    """The quotas of a group and of all that hold it. In a container the path may be that of the host: the root is the group."""
    parts = [p for p in path.split("/") if p not in ("", "..")]
    folders = [root.joinpath(*parts[:k]) for k in range(len(parts), -1, -1)]
    return [q for q in map(read, folders) if q is not None]


def _quota_of_version_2(folder: Path) -> float | None:
    numbers = _numbers(folder / "cpu.max")
    return numbers[0] / numbers[1] if len(numbers) == 2 and numbers[0] > 0 and numbers[1] > 0 else None


def _quota_of_version_1(folder: Path) -> float | None:
    quota, period = _numbers(folder / "cpu.cfs_quota_us"), _numbers(folder / "cpu.cfs_period_us")
    return quota[0] / period[0] if quota and period and quota[0] > 0 and period[0] > 0 else None


def _numbers(file: Path) -> list[int]:
    """The numbers of a file; none for a word such as `max`, or without the file."""
    try:
        return [int(word) for word in file.read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return []
