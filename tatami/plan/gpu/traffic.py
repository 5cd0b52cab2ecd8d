"""Sizes of a contraction, and what its operands and its epilogue ask of memory: what is simulated, besides the plan."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.expr import ONE, ZERO, Expr, product
from tatami.core.layout import address
from tatami.plan.gpu.block_work import block_work
from tatami.plan.gpu.edges import Step, Steps
from tatami.plan.gpu.sm90_shapes import residuals
from tatami.plan.gpu.sm_load import EpilogueRead, Traffic
from tatami.plan.loops.schedule import size_at
from tatami.region.ir import Read, Region
from tatami.region.views.matrix import write_addresses
from tatami.region.views.product import GemmOperand, GemmView, Group, major_of, rounded_to_tf32, run_of
from tatami.region.views.slides import guarded_read
from tatami.region.walk import nodes


def dims_of(view: GemmView, sizes: Mapping[str, int], rows: int = 1) -> tuple[int, int, int, int]:
    """Batch, m, n, k. With rows in groups, each end cuts a tile of `rows` rows into two, which are computed one after the
    other."""
    b, m, n, k = (size_at(g.size, sizes) for g in (view.batch, view.m, view.n, view.k))
    cuts = 0 if view.groups is None else max(0, size_at(view.groups.count, sizes) - 1)
    return b, m + cuts * rows, n, k


def traffic_of(region: Region, view: GemmView, sizes: Mapping[str, int]) -> Traffic:
    """Memory traffic of a product: distinct elements over elements read, per operand (below 1 for overlapping windows or
    operands shared by batches), the epilogue's bytes and stores."""
    shapes = {p.name: p.memref.shape for p in region.inputs}
    width = {p.name: p.memref.dtype.itemsize for p in region.inputs}
    batch, m, n, k = dims_of(view, sizes)

    def share(operand: GemmOperand, own: int) -> float:
        read = batch * own * k
        if operand.gather is None or not read:
            return 1.0
        return min(1.0, size_at(product(shapes[operand.gather.tensor]), sizes) / read)

    singles = _is_single(view.lhs, view.m, view.k), _is_single(view.rhs, view.n, view.k)
    reduced = {p.output.to for p in view.partials}
    written = zip(region.yields, write_addresses(region), strict=True)
    return Traffic(
        (share(view.lhs, m), share(view.rhs, n)),
        sum(width[e.tensor] for e in residuals(view)),
        singles,
        block_work(view),
        any(o.name not in reduced for o in region.outputs),
        (major_of(view.lhs, view.m, view.k) or "k", major_of(view.rhs, view.n, view.k) or "k"),
        tuple(
            _read_of(region, view, e, sizes)
            for e in dict.fromkeys(n for x in view.epilogue for n in nodes(x.expr))
            if isinstance(e, Read)
        ),
        next((_steps_of(view, at) for y, at in written if y.to not in reduced), ("many", "one")),
    )


def _read_of(region: Region, view: GemmView, read: Read, sizes: Mapping[str, int]) -> EpilogueRead:
    """The traffic of an operand of the epilogue, with its vectors at these sizes."""
    memref = next(p.memref for p in region.inputs if p.name == read.tensor)
    at = address(memref.layout, memref.shape, read.map)
    most = 16 // memref.dtype.itemsize

    def width(along: Group, other: Group) -> int:
        if not along.axes or step_of(at, along.axes[-1]) != ONE:
            return 1
        pitches = (step for a in other.axes if (step := step_of(at, a)) != ZERO)
        multiples = [size_at(x, sizes) if x is not None else 1 for x in (product(along.sizes), *pitches)]
        return next((w for w in (8, 4, 2) if w <= most and not any(x % w for x in multiples)), 1)

    return EpilogueRead(_steps_of(view, at), (width(view.m, view.n), width(view.n, view.m)))


def _steps_of(view: GemmView, at: Expr) -> Steps:
    def step(group: Group) -> Step:
        if not free_vars(at).intersection(group.axes):
            return "none"
        return "one" if step_of(at, group.axes[-1]) == ONE else "many"

    return step(view.m), step(view.n)


def _is_single(operand: GemmOperand, own: Group, k: Group) -> bool:
    """True if the operand is read in windows, one element at a time."""
    found = guarded_read(rounded_to_tf32(operand.expr) or operand.expr)
    entries = [] if found is None else [free_vars(e) for e in found[1].map]
    return any(e & {*own.axes} and e & {*k.axes} for e in entries) and run_of(operand, k) == 1
