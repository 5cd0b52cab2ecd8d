"""Outputs of a kernel that may share the memory of one of its inputs.

    for x = 0 .. n by 16 simd
      v1 = p0[x : 16]
      p1[x : 16] = relu(v1)          p1 may take the place of p0

Two conditions: an element is read only where the element of the same number is written, in the same run of a block and before
it; and each element is written once. No overwritten element is then read, however steps are divided among threads. The first
condition is checked on the statements, the second by enumerating the writes, so that sizes on which these depend have to be
numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tatami.core.algebra.visit import free_vars
from tatami.loop.ir import Assign, BufferParam, For, Gather, If, Load, Parallel, Pointer, Stmt, Store, type_of
from tatami.loop.passes.run_writes import Stored, writes_once
from tatami.loop.walk import blocks, nodes


def in_place(params: Sequence[BufferParam], body: tuple[Stmt, ...]) -> tuple[tuple[int, int], ...]:
    """Pairs of parameter positions (input, output) that may share memory, one pair at a time."""
    inside = list(nodes(body))
    moving = {n.reg.name for n in inside if isinstance(n, Assign)}
    elsewhere = {n.buffer for n in inside if isinstance(n, Gather | Pointer)}
    loads = Counter(n.buffer for n in inside if isinstance(n, Load))
    inputs = [(i, p) for i, p in enumerate(params) if not p.written and p.name in loads.keys() - elsewhere]
    outputs = [(o, p) for o, p in enumerate(params) if p.written and p.name not in elsewhere | loads.keys()]
    pairs = [(i, o) for i, p in inputs for o, q in outputs if p.dtype.itemsize == q.dtype.itemsize]
    paired = Counter(_paired(body, {(params[i].name, params[o].name) for i, o in pairs}, moving))
    safe = [(i, o) for i, o in pairs if paired[params[i].name, params[o].name] == loads[params[i].name]]
    stored = Stored(body)
    once = {o: writes_once(stored, params[o].name, moving) for o in {o for _, o in safe}}
    return tuple((i, o) for i, o in safe if once[o])


def _paired(body: tuple[Stmt, ...], pairs: set[tuple[str, str]], moving: set[str]) -> Iterator[tuple[str, str]]:
    """A pair, once for each load of its input after which, or with which, its block stores the same elements of its output.
    Loads whose index uses a register that is assigned again (`moving`) do not count."""
    for block in blocks(body):
        stores = [(k, s) for k, s in enumerate(block) if isinstance(s, Store) and any(s.buffer == o for _, o in pairs)]
        for k, stmt in enumerate(block if stores else ()):
            if isinstance(stmt, For | If | Parallel):
                continue
            for load in (n for n in nodes(stmt) if isinstance(n, Load) and not free_vars(n.index) & moving):
                wanted = (load.index, load.active, load.lanes)
                for to in {s.buffer for at, s in stores if at >= k and (s.index, s.active, type_of(s.value).lanes) == wanted}:
                    if (load.buffer, to) in pairs:
                        yield load.buffer, to
