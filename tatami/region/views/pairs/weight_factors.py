"""The weights of a streaming pair as factors: those that differ along a row, and those of the whole row."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.expr import var
from tatami.core.scalar import Scalar, number
from tatami.region import ir
from tatami.region.views.contraction import depends_on
from tatami.region.walk import free_axes, used_lets


class WeightProduct(msgspec.Struct, frozen=True):
    """A weight as ``tile * times / over``. `tile`: factors that differ along a row; `times`, `over`: factors and divisors of the
    whole row. `nan_sum`: the sum whose NaN the weight replaces by `nan_weight`; "" if it replaces none."""

    tile: tuple[ir.RegionExpr, ...] = ()
    times: tuple[ir.RegionExpr, ...] = ()
    over: tuple[ir.RegionExpr, ...] = ()
    nan_sum: str = ""
    nan_weight: Scalar = 0


class Refused(Exception):
    """The reason why the rows of a pair cannot be joined from blocks of columns."""


def let_of(e: ir.RegionExpr, lets: Mapping[str, ir.Let]) -> str:
    """The let that `e` reads at the let's own axes, or ""."""
    match e:
        case ir.Ref(let=let):
            return let
        case ir.At(let=let, map=map_) if map_ == tuple(var(a) for a in lets[let].axes):
            return let
        case _:
            return ""


class WeightFactors:
    """The weights of one pair. `keys`: the axis along a row; `top`: the let of the rows' maxima; `reduces`: reduces of the rows
    by let."""

    keys: str
    top: str
    lets: Mapping[str, ir.Let]
    axes: frozenset[str]
    reduces: dict[str, ir.Reduce]

    def product_of(self, e: ir.RegionExpr) -> WeightProduct:
        """`e` as factors that differ along a row (tile) and factors of the row."""
        if self.keys not in free_axes(e, self.lets, self.axes):
            return WeightProduct(times=(e,))
        if not self.needs_reduce(e) or self.is_shifted(e) or self.is_shifted(e, finite=True):
            return WeightProduct(tile=(e,))
        match self.through(e):
            case ir.Binary(fn="mul", x=x, y=y):
                a, b = self.product_of(x), self.product_of(y)
                if a.nan_sum or b.nan_sum:
                    raise Refused("a weight with an exception is a factor")
                return WeightProduct(a.tile + b.tile, a.times + b.times, a.over + b.over)
            case ir.Binary(fn="div", x=x, y=y) if self.keys not in free_axes(y, self.lets, self.axes):
                a = self.product_of(x)
                if a.nan_sum:
                    raise Refused("a weight with an exception is a factor")
                return WeightProduct(a.tile, a.times, (*a.over, y))
            case ir.Select(pred=ir.Unary(fn="isnan", x=tested), then=ir.Const(value=value), other=other):
                return self.without_nan(tested, value, other)
            case ir.Cast(x=x, to=to, bits=False) if to.is_narrow_float:
                return self.rounded(x)
            case ir.Unary(fn="tf32", x=x):
                return self.rounded(x)
            case _:
                raise Refused("a weight is not a product of row factors and exp(score - maximum)")

    def needs_reduce(self, e: ir.RegionExpr) -> bool:
        """True if `e` reads a let that depends on a reduce of the rows."""
        return any(depends_on(u, r, self.lets) for u in used_lets(e) for r in self.reduces)

    def is_shifted(self, e: ir.RegionExpr, finite: bool = False) -> bool:
        """True if `e` is exp(x - top) with top the maximum of x, which is then from 0 to 1. `finite`: with 0 instead of an
        infinite top."""
        match self.through(e):
            case ir.Unary(fn="exp", x=inner):
                match self.through(inner):
                    case ir.Binary(fn="sub", x=x, y=y) if self.top and (self.is_finite_top(y) if finite else self.is_top(y)):
                        return let_of(x, self.lets) == let_of(self.reduces[self.top].body, self.lets) != ""
        return False

    def is_top(self, e: ir.RegionExpr) -> bool:
        """True if `e` is the rows' maximum."""
        return let_of(e, self.lets) == self.top

    def is_finite_top(self, e: ir.RegionExpr) -> bool:
        """True if `e` is the rows' maximum, or 0 where that is infinite."""
        match self.through(e):
            case ir.Select(pred=ir.Unary(fn="isinf", x=tested), then=ir.Const(value=value), other=other) if number(value) == 0:
                return self.is_top(tested) and self.is_top(other)
        return False

    def without_nan(self, tested: ir.RegionExpr, value: Scalar, other: ir.RegionExpr) -> WeightProduct:
        """The product ``c where isnan(A / Z) else A / Z`` with Z = sum of A: a row is NaN in all of its elements or in
        none, because Z is at least 1 and at most the number of keys if the maximum is finite, and NaN if it is not."""
        p = self.product_of(other)
        same = let_of(tested, self.lets) and let_of(tested, self.lets) == let_of(other, self.lets)
        if not same or p.nan_sum or p.times or len(p.tile) != 1 or len(p.over) != 1 or not self.is_shifted(p.tile[0]):
            raise Refused("NaN is replaced in something else than A / sum(A)")
        if not self.is_total(p.over[0], p):
            raise Refused("NaN is replaced in a weight that is not divided by the sum of the weights")
        return WeightProduct(p.tile, p.times, p.over, let_of(p.over[0], self.lets), value)

    def rounded(self, x: ir.RegionExpr) -> WeightProduct:
        """Factors of a rounded weight from 0 to 1. A template that multiplies by the row's factors last may round the
        weight before them, or not at all: exp(score - maximum) is at least exp(score - maximum) / sum, and loses no
        more."""
        p = self.product_of(x)
        if p.times or len(p.tile) != 1 or not self.is_shifted(p.tile[0]) or any(not self.is_total(z, p) for z in p.over):
            raise Refused("a weight that may be above 1 is rounded")
        return p

    def is_total(self, e: ir.RegionExpr, p: WeightProduct) -> bool:
        """True if `e` is the sum of the only weight of `p`, which is then at least 1, or NaN."""
        total = let_of(e, self.lets)
        return total in self.reduces and self.reduces[total].body == p.tile[0]

    def through(self, e: ir.RegionExpr) -> ir.RegionExpr:
        """The expression of a pointwise let behind a plain reference; else `e`."""
        while (name := let_of(e, self.lets)) and not isinstance(self.lets[name].expr, ir.Reduce | ir.Scan):
            e = self.lets[name].expr
        return e
