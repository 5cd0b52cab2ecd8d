"""Reduces that go down the columns of a matrix row by row (`loop/nests/column_reduces.py`), instead of column by column."""

from __future__ import annotations

from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import step_of
from tatami.core.expr import ONE, ZERO
from tatami.core.layout import address
from tatami.core.numbers.combining import accumulator_dtype
from tatami.plan.views.flatten import reduce_of
from tatami.plan.views.nest_form import NestForm, Pass, Phase, is_scan, lets_read, nodes
from tatami.region.ir import Read

GROUP = 8
"""Rows that meet before they join the totals: as many streams as a prefetcher follows, and ways of L1."""
ROWS = 512 * GROUP
"""Rows of a float sum at most: longer ones are added up in blocks."""
COLUMN_STEP_BYTES = 4096
"""Minimum bytes from row to row of an operand for which its columns are reduced row by row."""


def has_lone_points(form: NestForm, p: Pass, phase: Phase) -> bool:
    """True if some points of a pass have no lanes: those of a pass without, or of the tail, which blocks of lanes have too."""
    in_tiles = len(phase.passes) > 1 and bool(set(phase.threads) - set(phase.outer))
    in_blocks = in_tiles or p.vector in phase.threads or bool(columns_of(form, p, phase))
    return not p.vector or in_blocks or form.has_tail(p.vector)


def columns_of(form: NestForm, p: Pass, phase: Phase) -> list[str]:
    """The reduces of a pass that go so: threads share the lanes of the pass, or all its other loops."""
    rest = tuple(a for a in p.axes if a not in phase.threads)
    may = not phase.outer and bool(phase.threads) and p.vector and (p.vector in phase.threads or rest == (p.vector,))
    return down_columns(form, p) if may and not is_scan(p) else []


def down_columns(form: NestForm, p: Pass) -> list[str]:
    """The reduces of a pass along one axis of lanes that are far from row to row and wait for nothing in the pass."""
    inside = set(p.lets)
    found: list[str] = []
    for item in p.items:
        waits = any(at.let in inside for name in item.lets for at in lets_read(form.lets[name].expr))
        if item.kind == "reduce" and not waits and all(_is_far(form, name, p.vector) for name in item.lets):
            found += item.lets
    return found


def _is_far(form: NestForm, name: str, vector: str) -> bool:
    """True if reads jump far along the last reduced axis, and go along the lanes. Others may stay where they are along these:
    the vector of a product with a matrix."""
    reduce = reduce_of(form.lets[name])
    down = reduce.axes[-1]
    count = form.sizes[down].as_int()
    reads = [n for n in nodes(reduce.body) if isinstance(n, Read)]
    long_sum = reduce.fn == "sum" and accumulator_dtype(reduce.dtype).is_float and (count is None or count > ROWS)
    few = count is not None and count < 2 * GROUP
    if few or long_sum or reduce.fn in ("argmax", "argmin") or form.lanes < 4 or not reads:
        return False
    memrefs = form.memrefs
    places = [(n.tensor, simplify(address(memrefs[n.tensor].layout, memrefs[n.tensor].shape, n.map), {})) for n in reads]
    moving = [(tensor, at) for tensor, at in places if step_of(at, vector) != ZERO]
    for tensor, at in moving:
        step = step_of(at, down)
        apart = None if step is None else step.as_int()
        if step_of(at, vector) != ONE or apart is None or apart * memrefs[tensor].dtype.itemsize < COLUMN_STEP_BYTES:
            return False
    return bool(moving)
