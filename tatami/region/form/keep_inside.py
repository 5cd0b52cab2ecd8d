"""A guard for every read that is not proved to be inside its tensor or let.

    x[3*i0 - 2*((b + i0)//b)]    ->    select(within 0 <= 3*i0 - 2*((b + i0)//b) < N, x[..], 0)

Views of a model read inside their tensors even if the prover cannot show it, so such a guard always holds; it costs a
comparison, and the kernels need no proof. Without it a Region would be refused for a reason no user can mend.
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.assumed import Assumed
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, Shape
from tatami.indexbook.ir import Guard
from tatami.region.checks.guards import is_proved_inside
from tatami.region.ir import At, Const, Let, Read, ReadAt, Reduce, Region, RegionExpr, Select, Within
from tatami.region.walk import Types, all_axes, children, let_shape, with_children


def keep_inside(region: Region, assumed: Assumed) -> Region:
    """The Region with those guards and neutral elements outside. `assumed`: the equations of its program."""
    if region.opaque is not None:
        return region
    extents = all_axes(region)
    tensors = {p.name: p.memref.shape for p in region.inputs}
    lets = {let.name: let_shape(region, let) for let in region.lets}
    reads = _Reads(region, extents, tensors, lets, assumed)
    return msgspec.structs.replace(region, lets=tuple(map(reads.let, region.lets)))


class _Reads:
    """The reads of one Region. A let may have the name of the tensor that it computes again, and fewer axes: none of size 1."""

    def __init__(
        self,
        region: Region,
        extents: dict[str, Expr],
        tensors: dict[str, Shape],
        lets: dict[str, Shape],
        assumed: Assumed,
    ) -> None:
        self.extents, self.tensors, self.lets, self.assumed = extents, tensors, lets, assumed
        self.types = Types(region)

    def let(self, let: Let) -> Let:
        e = self.inside(let.expr, frozenset(let.axes), ())
        return let if e is let.expr else msgspec.structs.replace(let, expr=e)

    def inside(self, e: RegionExpr, scope: frozenset[str], known: tuple[Guard, ...]) -> RegionExpr:
        """`e` with guards around its unproved reads. `scope`: the axes in scope; `known`: the guards around `e`."""
        if isinstance(e, Read | At):
            shape = self.tensors[e.tensor] if isinstance(e, Read) else self.lets[e.let]
            beyond = self.unproved(shape, e.map, scope, known)
            return Select(Within(beyond), e, self.neutral(e)) if beyond else e
        old = children(e)
        parts: tuple[RegionExpr, ...]
        if isinstance(e, Select) and isinstance(e.pred, Within):
            parts = (e.pred, self.inside(e.then, scope, known + e.pred.guards), self.inside(e.other, scope, known))
        else:
            scope = scope | frozenset(e.axes) if isinstance(e, Reduce) else scope
            parts = tuple(self.inside(c, scope, known) for c in old)
        e = e if all(a is b for a, b in zip(parts, old, strict=True)) else with_children(e, parts)
        if isinstance(e, ReadAt):
            beyond = self.unproved(self.tensors[e.tensor], e.map, scope, known)
            return Select(Within(beyond), e, self.neutral(e)) if beyond else e
        return e

    def unproved(
        self, shape: Shape, entries: tuple[Expr | None, ...], scope: frozenset[str], known: tuple[Guard, ...]
    ) -> tuple[Guard, ...]:
        """A guard for each map entry of a read that the guards `known` do not prove inside `shape`."""
        extents = {a: n for a, n in self.extents.items() if a in scope}
        if ZERO in extents.values():  # nothing runs, so nothing is read
            return ()
        pairs = zip(entries, shape, strict=True)
        return tuple(
            Guard(i, n) for i, n in pairs if i is not None and not is_proved_inside(i, n, extents, known, self.assumed)
        )

    def neutral(self, e: RegionExpr) -> Const:
        """Zero, or False, in the dtype of `e`."""
        dtype = self.types.of(e)
        assert dtype is not None
        return Const(False if dtype == DType.bool else 0, dtype)
