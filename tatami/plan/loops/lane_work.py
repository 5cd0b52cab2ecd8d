"""Steps of a loop along an axis of lanes, and the cycles of one step: what the C of vector loops does.

    row of n elements = n // lanes whole vectors, narrower ones where values are costly, then single elements
    step              = STEP + max(operations / 2, plain loads) + other accesses

Cycles are those of a core with two multiply-adds of a whole vector per cycle (`estimate.clock`). Where a core has fewer, a
vector as wide as its units takes the share of a whole one, and so do single elements, which no unit does faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice, product

import msgspec

from tatami.core.algebra.lane_step import lane_step, repeats
from tatami.core.algebra.visit import evaluate, free_vars, substitute
from tatami.core.expr import ONE, ZERO
from tatami.core.target import Target
from tatami.indexbook.ir import Guard
from tatami.plan.loops.accesses import AccessMove

LOAD, STORE = 0.5, 1.0
"""Cycles of a vector that is loaded or stored where neighbours lie side by side, or of one element for all lanes."""
SECOND = 1.5
"""Cycles of a vector of every second element: two loads and a shuffle."""
REPEATED = 1.0
"""Cycles of a vector of elements that several lanes share: a load and a shuffle."""
APART = 1.0
"""Cycles per lane of a vector whose elements lie apart: a load, and its place in the vector."""
UNEVEN = 3.0
"""Cycles per lane of elements whose place is computed for each: divisions, a load, its place in the vector."""
GATHERED, CHECKED = 1.5, 3.0
"""Cycles per element read at a position of its own: its index is extracted from a vector, and checked unless it is known to be
inside."""
SCATTERED = 4.0
"""Cycles per element written into a cache line of its own: its neighbours are written at other times."""
GUARD = 1.5
"""Cycles of the test before a guarded read."""
AT_BORDER, BORDER_LANE = 10.0, 4.0
"""Cycles of a guarded vector with lanes outside: a vector in memory that is filled by a loop and then loaded; and of each lane."""
LEAST_COSTLY = 0.75
"""Least cycles of an operation of a function or a division on few lanes, relative to that on a whole vector: each waits for the
one before."""
NARROW = 1.2
"""Ratio of the time of half a vector to half that of a whole one, where a core takes whole ones in two halves: 1.0 to 1.5 measured."""
STEP = 0.5
"""Cycles of a step besides its work: the counter, the branch."""
L2_BYTES_PER_CYCLE = 32.0
"""Bytes per cycle of the clock that come from L2 to L1 where lines of a matrix lie apart."""
UNKNOWN = 128
"""Value of a size symbol without a hint."""
PLACES = 64
"""Maximum number of places at which a guard is looked at."""


class Unit(msgspec.Struct, frozen=True):
    """The machine in terms of steps. `vector_bytes`: of a register; `narrow`: cycles of an instruction of the narrowest vectors, or of
    one element, relative to that of a whole vector; `l1_bytes`: of the first cache."""

    vector_bytes: int
    narrow: float
    l1_bytes: int

    def weight(self, lanes: int, itemsize: int) -> float:
        """Cycles of an instruction on `lanes` elements, relative to one on a register."""
        return max(self.narrow, lanes * itemsize / self.vector_bytes)


def unit_of(target: Target, multiply_adds: float) -> Unit:
    """The unit of a machine with so many multiply-adds of whole vectors per cycle."""
    return Unit(max(4, target.vector_bytes), min(1.0, NARROW * multiply_adds / 2), target.l1_bytes)


def steps_along(extent: int, lanes: int, is_known: bool, is_costly: bool) -> dict[int, int]:
    """Number of steps of a loop of `extent` elements, by their lanes (loop/nests/lane_loops.py).

    >>> steps_along(57, 16, True, False), steps_along(57, 16, True, True), steps_along(57, 16, False, True)
    ({16: 3, 1: 9}, {16: 3, 8: 1, 1: 1}, {16: 3, 4: 2, 1: 1})
    """
    out: dict[int, int] = {}
    rest, width = extent, lanes
    while width > 1:
        if rest >= width and (width == lanes or is_costly):
            out[width], rest = rest // width, rest % width
        width = width // 2 if is_known or width == 4 else 4
        if width < 4:
            break
    if rest:
        out[1] = rest
    return out


def vectors_of_row(extent: int, lanes: int, unit: Unit) -> float:
    """Time of a row of `extent` elements in that of whole vectors: the last elements are taken in narrower vectors and one by one."""
    steps = steps_along(extent, lanes, True, True)
    return sum(n * max(unit.narrow, width / lanes) for width, n in steps.items())


def access_cycles(m: AccessMove, vector: str, lanes: int, weight: float, narrow: float) -> float:
    """Cycles of one access in a step of `lanes` elements along `vector`, without its guards."""
    plain = (STORE if m.written else LOAD) * weight
    if lanes == 1:
        return plain
    if vector in m.gathers:
        return (CHECKED if m.is_checked else GATHERED) * lanes
    if m.linear is None:
        return APART * lanes * narrow
    step = lane_step(m.linear, vector, lanes)
    if step in (ZERO, ONE):
        return plain
    if m.written:
        return APART * lanes * narrow if m.is_near else SCATTERED * lanes
    if step is not None:
        return SECOND * weight if step.as_int() == 2 else APART * lanes * narrow
    return REPEATED * weight if repeats(m.linear, vector, lanes) else UNEVEN * lanes * narrow


def is_plain(m: AccessMove, vector: str, lanes: int) -> bool:
    """True if an access loads neighbours, or one element for all lanes: no unit that computes is busy with it."""
    if m.written or m.linear is None or (lanes > 1 and vector in m.gathers):
        return False
    return lanes == 1 or lane_step(m.linear, vector, lanes) in (ZERO, ONE)


def guarded_cycles(m: AccessMove, vector: str, lanes: int, unit: Unit, extents: Mapping[str, int]) -> float:
    """Cycles of the guards of an access in such a step: the test, and the lanes of vectors at a border, read one by one."""
    if not m.guards:
        return 0.0
    cycles = GUARD * unit.narrow
    if lanes == 1:
        return cycles
    used = tuple(sorted((n, extents.get(n, UNKNOWN)) for n in _names(m.guards)))
    share = min(1.0, sum(border_share(g, vector, lanes, used) for g in m.guards))
    return cycles + share * (AT_BORDER + BORDER_LANE * lanes) * unit.narrow


def _names(guards: Sequence[Guard]) -> set[str]:
    return {n for g in guards for n in free_vars(g.index) | free_vars(g.size)}


@lru_cache(maxsize=4096)
def border_share(g: Guard, vector: str, lanes: int, extents: tuple[tuple[str, int], ...]) -> float:
    """Share of whole vectors along `vector` of whose lanes a guard holds for some and not for others, over the places of the other
    axes; 1 if its index moves unevenly. `extents`: of axes and size symbols that the guard names."""
    sizes = dict(extents)
    step = lane_step(g.index, vector, lanes)
    if step == ZERO:
        return 0.0
    by = None if step is None else step.as_int()
    count = sizes.get(vector, 0) // lanes
    if by is None or not count or vector in free_vars(g.size):
        return 1.0
    rest = substitute(g.index, {vector: ZERO})
    others = [n for n in sizes if n != vector and n in free_vars(rest)]
    partial = looked = 0
    for places in islice(product(*(range(sizes[n]) for n in others)), PLACES):
        env = {**sizes, **dict(zip(others, places))}
        at, size = int(evaluate(rest, env)), int(evaluate(g.size, env))
        low, high = (-(at // by), -((at - size) // by)) if by > 0 else ((size - at) // by + 1, at // -by + 1)
        low, high = max(0, min(low, count * lanes)), max(0, min(high, count * lanes))
        whole = max(0, high // lanes - -(-low // lanes))
        touched = -(-high // lanes) - low // lanes if low < high else 0
        partial, looked = partial + touched - whole, looked + count
    return partial / looked if looked else 1.0
