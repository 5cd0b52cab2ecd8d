"""Prefetches for rows that several loops pass over: cache lines arrive while the costliest loop computes.

    parallel row                          parallel row
      for x: max of p0[row, x]              next = min(row + 1, rows - 1)
      for x: exp, sum               ->      for x: max of p0[row, x]
      for x: p1[row, x] = scaled            for x: prefetch p0[next, x], prefetch p1[row, x] to write, exp, sum
                                            for x: p1[row, x] = scaled

The first loop over a row mostly waits for its lines, and so does a loop that writes: the hardware prefetcher follows the lines
of a page that are read in sequence, but neither crosses to the next page nor fetches lines to write."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.cost import op_cost
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, minimum, var
from tatami.core.target import CACHE_LINE
from tatami.loop.ir import Declare, For, IndexOf, Load, Op, Prefetch, Reg, Stmt, Store, type_of
from tatami.loop.walk import nodes

SHORTEST, LONGEST = 512, 1 << 16
"""Minimum and maximum number of elements per row: shorter rows share a page; the first lines of longer ones would be evicted
before use."""


def fetched_ahead(body: tuple[Stmt, ...], row: str, rows: Expr, name: str) -> tuple[Stmt, ...]:
    """The statements of one of `rows` rows, with prefetches of lines that the next row reads and of lines that this one
    writes. `name`: a free name for the number of the next row."""
    loops = {k: s for k, s in enumerate(body) if isinstance(s, For) and _goes_along(s)}
    if len(loops) < 2 or rows == ONE:
        return body
    costs = {k: _cost(loop) for k, loop in loops.items()}
    inside = {s.var if isinstance(s, For) else s.reg.name for s in nodes(body) if isinstance(s, For | Declare)}
    asked: dict[tuple[str, bool], tuple[int, tuple[Stmt, ...]]] = {}
    for k, loop in loops.items():
        for e in nodes(loop.body):
            if not isinstance(e, Load | Store):
                continue
            write = isinstance(e, Store)
            before = [j for j in loops if j < k or not write]
            along = step_of(e.index, loop.var) == ONE and step_of(e.index, row) not in (None, ZERO, ONE)
            plain = free_vars(e.index) & inside == {loop.var}  # defined in the other loops too
            if not along or not plain or not before or (e.buffer, write) in asked:
                continue
            busy = max(before, key=lambda j: (costs[j], j))
            to = {loop.var: var(loops[busy].var)} | ({} if write else {row: var(name)})
            elements = CACHE_LINE // type_of(e.value if isinstance(e, Store) else e).dtype.itemsize
            places = (substitute(e.index, to) + at for at in range(0, loops[busy].step, elements))
            asked[e.buffer, write] = busy, tuple(Prefetch(e.buffer, place, write) for place in places)
    for busy, prefetches in asked.values():
        loops[busy] = msgspec.structs.replace(loops[busy], body=(*prefetches, *loops[busy].body))
    out = tuple(loops.get(k, s) for k, s in enumerate(body))
    following = Declare(Reg(name, DType.i64), IndexOf(minimum(rows - 1, var(row) + 1), DType.i64), integer=True)
    return (following, *out) if any(not write for _, write in asked) else out


def _goes_along(loop: For) -> bool:
    """True if the loop passes over a whole row, except for a tail, in vectors of at least half a cache line."""
    count = (loop.stop - loop.start).as_int()
    return loop.simd and loop.start == ZERO and loop.step >= 8 and (count is None or SHORTEST <= count <= LONGEST)


def _cost(loop: For) -> float:
    """Scalar operations per element, weighted by cost."""
    return sum(op_cost(e.fn) for e in nodes(loop.body) if isinstance(e, Op)) / loop.step
