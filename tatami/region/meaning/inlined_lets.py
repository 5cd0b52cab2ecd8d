"""The lets of a Region that are not stored while it runs: a large pointwise let with one use is computed where it is used."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.expr import Shape
from tatami.region import ir
from tatami.region.walk import all_axes, index_expressions, nodes

MAX_STORED = 1 << 22
"""Maximum elements of a stored pointwise let that has one use; a larger one is computed where it is used."""


def clamped_shape(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape in numbers; negative extents count as 0."""
    return tuple(max(0, int(evaluate(s, sizes))) for s in shape)


class InlinedLets:
    """The lets of a Region that are computed where they are used, and the extents of arrays that expressions over them make.
    `names`: these lets."""

    def __init__(self, region: ir.Region, sizes: Mapping[str, int]) -> None:
        self.region = region
        self.sizes = sizes
        self.extents = all_axes(region)
        self.lets = {let.name: let for let in region.lets}
        self.names: frozenset[str] = frozenset()
        self.names = self._find()

    def _find(self) -> frozenset[str]:
        """Names of large pointwise lets that one other let uses, not by At: they are computed where they are used."""
        uses: dict[str, int] = {n: 2 for y in self.region.yields for n in (y.source, *y.indices)}
        for let in self.region.lets:
            for n in nodes(let.expr):
                if isinstance(n, ir.Ref | ir.At):
                    uses[n.let] = uses.get(n.let, 0) + (1 if isinstance(n, ir.Ref) else 2)
        out: set[str] = set()
        for let in self.region.lets:
            shape = clamped_shape(tuple(self.extents[a] for a in let.axes), self.sizes)
            pointwise = not any(isinstance(n, ir.Reduce | ir.Scan) for n in nodes(let.expr))
            if pointwise and uses.get(let.name, 0) < 2 and np.prod(shape, dtype=np.float64) > MAX_STORED:
                out.add(let.name)
        return frozenset(out)

    def elements(self, e: ir.RegionExpr, extent: Mapping[str, int]) -> int:
        """Number of elements of the largest array that evaluating `e` makes over a scope of `extent`."""
        inner = dict(extent)
        if isinstance(e, ir.Reduce):
            inner |= {a: int(evaluate(self.extents[a], self.sizes)) for a in e.axes}
            if (factors := self.product(e)) is not None:
                return max(self._dense(f, inner) for f in factors)
            return self._dense(e.body, inner)
        return self._dense(e, inner)

    def _dense(self, e: ir.RegionExpr, extent: Mapping[str, int]) -> int:
        used = self._axes(e) & extent.keys()
        return int(np.prod([extent[a] for a in used], dtype=np.float64))

    def _axes(self, e: ir.RegionExpr) -> set[str]:
        """The axes along which the array that `e` makes has its full extent."""
        out: set[str] = set()
        for n in nodes(e):
            for x in index_expressions(n) if not isinstance(n, ir.BroadcastInDim) else ():
                out |= free_vars(x)
            if isinstance(n, ir.Ref):
                let = self.lets[n.let]
                out |= self._let_axes(let) if n.let in self.names else set(let.axes)
        return out & self.extents.keys()

    def _let_axes(self, let: ir.Let) -> set[str]:
        e = let.expr
        if isinstance(e, ir.BroadcastInDim | ir.Transpose) and isinstance(e.operand, ir.Ref):
            operand = self.lets[e.operand.let]
            mine = self._let_axes(operand) if operand.name in self.names else set(operand.axes)
            places = e.broadcast_dimensions if isinstance(e, ir.BroadcastInDim) else _inverse(e.permutation)
            return {let.axes[d] for a, d in zip(operand.axes, places) if a in mine}
        return self._axes(e)

    def product(self, e: ir.Reduce) -> tuple[ir.RegionExpr, ir.RegionExpr] | None:
        """The factors if `e` is a sum of a product, which may stand in an unstored let of the same dtype; else None."""
        if e.fn != "sum":
            return None
        body = e.body
        if isinstance(body, ir.Ref) and body.let in self.names and self.lets[body.let].dtype == e.dtype:
            body = self.lets[body.let].expr
            if any(isinstance(n, ir.BroadcastInDim | ir.Transpose) for n in nodes(body)):
                return None
        if isinstance(body, ir.Binary) and body.fn == "mul":
            return body.x, body.y
        return None


def _inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Position in the result of each operand axis."""
    out = [0] * len(permutation)
    for j, p in enumerate(permutation):
        out[p] = j
    return tuple(out)
