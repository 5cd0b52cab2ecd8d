"""Long lines of reduces and scans cut into blocks (`Blocks`): their size, and whether all threads share a line.

The size of a block depends on sizes and lanes alone, so that results do not depend on the number of threads; `round` only
divides the work.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.target import Target
from tatami.plan.ir import Blocks
from tatami.plan.loops.estimate import trips
from tatami.plan.loops.schedule import size_at
from tatami.region.ir import Let, Reduce, Region, Scan
from tatami.region.walk import all_axes

SCAN_BLOCK = 4096
"""Elements per block of a scan, whose prefixes are computed together: many vectors, and a small part of a cache."""
SHARED = 1 << 16
"""Minimum elements of a line that pay for two parallel loops per round (some 20 us)."""
REDUCE_BLOCK = 1 << 14
"""Terms per partial result: a task of some microseconds."""
FEW = 32
"""Minimum number of results for each thread to reduce whole results. Constant, so that the summation order never depends on
the thread count."""
LANES_OF_REDUCE = 64
"""Neighbouring results per task (loop/nests/rows.py)."""
BY_ROWS_BYTES = 4096
"""Minimum bytes of a row of results for which memory is read row by row (loop/nests/column_reduces.py)."""
ROWS = (64, 32, 16)
"""Rows per block in that case, the largest that fits: results are written and read again once per block."""
BLOCKS = 4
"""Minimum number of blocks, for threads to divide."""
POSITIONS_FROM = 4
"""Minimum threads for a blocked argmax: it reads the data twice (extremum, then position). It may depend on the thread count,
since a position is exact."""
LANES_OF_TASK = 256
"""Lanes per task if threads divide neighbouring lines (loop/nests/rows.py)."""


def scan_blocks(region: Region, vector: str, target: Target, sizes: Mapping[str, int]) -> Blocks | None:
    """The blocks of the Region's longest scan; None if a line is one block."""
    extents = all_axes(region)
    scans = [(let, let.expr) for let in region.lets if isinstance(let.expr, Scan)]
    if not scans:
        return None
    let, scan = max(scans, key=lambda s: size_at(extents[s[1].axis], sizes))
    across = vector if vector in let.axes and vector != scan.axis else ""
    lanes = size_at(extents[across], sizes) if across else 1
    size = max(64, SCAN_BLOCK // _power_of_two(lanes))
    known = extents[scan.axis].as_int()
    if known is not None and known <= size:
        return None
    return Blocks(scan.axis, size, _round(region, let, scan, across, size, target, sizes))


def reduce_blocks(region: Region, vector: str, target: Target, sizes: Mapping[str, int]) -> Blocks | None:
    """Blocks of the longest reduce, if it has too few results for threads to divide; else None. `size` counts the outermost of
    its axes."""
    extents = all_axes(region)
    reduces = [(let, let.expr) for let in region.lets if isinstance(let.expr, Reduce)]
    if not reduces:
        return None
    let, reduce = max(reduces, key=lambda r: trips(region, (*r[0].axes, *r[1].axes), sizes))
    if reduce.fn in ("argmax", "argmin") and target.cores < POSITIONS_FROM:
        return None
    results, inner = trips(region, let.axes, sizes), trips(region, reduce.axes[1:], sizes)
    terms, known = size_at(extents[reduce.axes[0]], sizes), extents[reduce.axes[0]].as_int()
    across = vector in let.axes
    width = size_at(extents[vector], sizes) if across else 1
    by_rows = width * reduce.dtype.itemsize >= BY_ROWS_BYTES and results < FEW * width
    tasks = -(-results // LANES_OF_REDUCE) if across else results
    if tasks >= FEW and not (by_rows and _ends_in(region, let)):
        return None
    if results * inner * terms < SHARED:
        return None
    size = max(1, REDUCE_BLOCK // (inner * (results if across else 1)))
    size = size // 64 * 64 if size > 64 else size
    if by_rows:
        size = max(size, next((n for n in ROWS if known is None or n * BLOCKS <= known), 1))
    if known is not None and known < 2 * size:
        return None
    return Blocks(reduce.axes[0], size, 0 if _have_lines_of_their_own(tasks, target) else -(-terms // size))


def _ends_in(region: Region, let: Let) -> bool:
    """True if `let` is the only reduce or scan and no output is larger than its results, so that its operands are read once."""
    reduces = [other for other in region.lets if isinstance(other.expr, Reduce | Scan)]
    after = {y.source for y in region.yields}
    return reduces == [let] and all(set(other.axes) <= set(let.axes) for other in region.lets if other.name in after)


def _round(region: Region, let: Let, scan: Scan, across: str, size: int, target: Target, sizes: Mapping[str, int]) -> int:
    """Number of blocks at a time if lines are too few for the threads; 0: each thread has lines of its own. Operands that a
    round reads twice fill half of the threads' own caches."""
    cores = max(1, target.cores)
    extents = all_axes(region)
    lanes = size_at(extents[across], sizes) if across else 1
    lines = trips(region, tuple(a for a in let.axes if a not in (scan.axis, across)), sizes)
    if _have_lines_of_their_own(lines * -(-lanes // LANES_OF_TASK), target):
        return 0
    if size_at(extents[scan.axis], sizes) * lanes < SHARED:
        return 0
    room = cores * max(target.l2_bytes, 1 << 18) // 2
    blocks = -(-size_at(extents[scan.axis], sizes) // size)
    return min(blocks, max(4 * cores, room // (size * lanes * max(4, scan.dtype.itemsize))))


def _have_lines_of_their_own(tasks: int, target: Target) -> bool:
    """True if threads have equal work when each takes whole lines."""
    cores = max(1, target.cores)
    return cores == 1 or tasks >= 4 * cores or tasks % cores == 0


def _power_of_two(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (max(1, n).bit_length() - 1)
