"""A map whose operands are transposed tile by tile, 16 lines at a time in registers (region/views/transpose.py).

threads divide tiles of `along` x `across`:
    a plain copy: the transposing routine writes the result
    else: it writes scratch, [across][along], which the map then reads by vectors along its writes"""

from __future__ import annotations

from tatami.core.algebra.visit import step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, product, var
from tatami.core.target import lanes_of
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.grain import GRAIN_PACK, grain
from tatami.loop.emit.template import Stmts, Tiles, misfit
from tatami.loop.products.contraction_operands import ELEMENT
from tatami.plan.ir import CpuTurn
from tatami.region.ir import Read, Region
from tatami.region.views.transpose import Turned, find_turned


def lower_turn(region: Region, plan: CpuTurn) -> loop.Body:
    """The kernel body of a renamed Region that transposes its operands. Raises InvalidPlan if it does not."""
    found = find_turned(region)
    if isinstance(found, str):
        raise misfit(plan, plan.across, found)
    return _Turn(region, plan, found).body()


class _Turn(Tiles):
    def __init__(self, region: Region, plan: CpuTurn, turned: Turned) -> None:
        dtype = next(p.memref.dtype for p in region.inputs if p.name == turned.reads[0].tensor)
        element, lanes = ELEMENT[dtype], lanes_of(plan.width, dtype.itemsize)
        super().__init__(region, "", dtype, (), lanes, f"tatami_pack_{element}_{lanes}")
        if lanes not in (4, 8, 16) or self.stride(turned.reads[0], turned.along) is None:
            raise misfit(plan, plan.across, f"vectors of {lanes} elements cannot be transposed")
        self.region, self.turned, self.tile = region, turned, plan.tile
        self.others = tuple(i.name for i in region.iters if i.name not in (turned.along, turned.across))

    def stride(self, read: Read, axis: str) -> Expr | None:
        return step_of(self.address(read.tensor, read.map), axis)

    def body(self) -> loop.Body:
        along, across = self.turned.along, self.turned.across
        columns, rows = (ceildiv(self.extents[a], expr(self.tile)) for a in (along, across))
        items = product(self.extents[a] for a in self.others) * rows * columns
        x = self.counter(items)
        declare, at, block = self.batch_values(self.others, var(x), rows * columns)
        row, d = self.integer(floordiv(block, maximum(columns, ONE)))
        a0, a1, da = self.part(across, row)
        b0, b1, db = self.part(along, block - row * columns)
        start = {**at, across: a0, along: b0}
        head = (*declare, d, *da, *db)
        size = ((b1 - b0), (a1 - a0))
        target = self.copied_to()
        if target is not None:
            place, pitch = target
            call = self.turn(
                self.turned.reads[0],
                start,
                loop.Pointer(place, substitute(self.target(self.region.yields[0]), start)),
                pitch,
                size,
            )
            return self.kernel(x, items, (*head, call), ())
        pitch = expr(self.tile + self.lanes)
        scratch = {r: self.local(pitch * self.tile) for r in self.turned.reads}
        calls = tuple(self.turn(r, start, loop.Pointer(b.name, ZERO), pitch, size) for r, b in scratch.items())
        k, j = self.counter(self.extents[across]), self.counter(self.extents[along])

        def element(y: str, p: Point) -> None:
            for r, buffer in scratch.items():
                value = self.em.load(buffer.name, (var(k) - a0) * pitch + var(y) - b0, self.dtype, p)
                read = self.em.address(r.tensor, tuple(p.at(e) for e in r.map))
                self.em.remember(("read", r.tensor, read, p.lanes), self.em.declare(value))
            self.store_yields(self.region, p)

        line = self.run_along({**at, across: var(k), along: var(j)}, j, b0, b1, element, (self.lanes, 1))
        return self.kernel(x, items, (*head, *calls, loop.For(k, a0, a1, line)), tuple(scratch.values()))

    def kernel(self, x: str, items: Expr, body: Stmts, buffers: Stmts) -> loop.Body:
        work = grain(GRAIN_PACK, expr(self.tile * self.tile))
        return loop.Body((loop.Parallel(x, items, work, body, buffers),), about=f"turned by tiles of {self.tile}")

    def part(self, axis: str, number: Expr) -> tuple[Expr, Expr, Stmts]:
        first, d0 = self.integer(number * self.tile)
        last, d1 = self.integer(minimum(self.extents[axis], first + self.tile))
        return first, last, (d0, d1)

    def copied_to(self) -> tuple[str, Expr] | None:
        """The output and its step along the transposed axis, if the Region is nothing but a copy; else None."""
        if len(self.region.yields) != 1 or len(self.region.lets) != 1 or self.region.lets[0].expr != self.turned.reads[0]:
            return None
        (y,) = self.region.yields
        pitch = step_of(self.target(y), self.turned.across)
        same = y.cast is None and self.memrefs[y.to].dtype == self.dtype == self.region.lets[0].dtype
        return (y.to, pitch) if same and pitch is not None else None

    def turn(self, read: Read, start: dict[str, Expr], to: loop.Pointer, pitch: Expr, size: tuple[Expr, Expr]) -> loop.Call:
        stride = self.stride(read, self.turned.along)
        assert stride is not None
        source = loop.Pointer(read.tensor, substitute(self.address(read.tensor, read.map), start))
        sizes = (size[0], pitch, stride, size[1])
        return loop.Call(self.pack_routine, (to, source, *(loop.Integer(e) for e in sizes)), routine=True)
