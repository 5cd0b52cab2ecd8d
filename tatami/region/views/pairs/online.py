"""Streaming pairs whose rows can be joined from blocks of columns: the condition for attention in one pass over its keys.

    S = sum_d Q*K ;  X = scale(S) ;  M = max_n X ;  A = exp(X - M) ;  Z = sum_n A ;  P = A / Z ;  O = sum_n P * V

A sum over n whose terms use M only in a factor exp(X - M) can be computed block by block: when the maximum grows from M to M',
the sum of the earlier blocks is multiplied by exp(M - M'). Factors that are the same for a whole row (1 / Z) leave the second
product. The rule is about sums, products and exp; it does not ask for softmax (design §3 region). Values made of M and Z alone
can be written in addition to O, one per row: a gradient needs L = log(Z) + M to compute A again.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TypeGuard

import msgspec

from tatami.core.dtype import DType
from tatami.core.scalar import Scalar, number
from tatami.region import ir
from tatami.region.views.contraction import ContractionShape, depends_on, epilogue_of, find_contractions, find_streaming_pair
from tatami.region.views.pairs.weight_factors import Refused, WeightFactors, let_of
from tatami.region.walk import all_axes, free_axes, lets_by_name, nodes, used_lets


class Online(msgspec.Struct, frozen=True):
    """A streaming pair in normal form. `firsts`: first products, oriented so that their m is `rows` and their n is `keys`;
    `second`: oriented so that its lhs is the weights. With several first products, as in dS = P * (dO V^T - D), rows
    have no maximum and no sum.

    `scores`: the let whose maximum is `top`, or the first product itself. `sums`: lets that are sums over the keys.
    `weight`: the factors of a weight that differ along a row; `times` and `over`: the factors and divisors that do not. In
    rows where the sum `nan_sum` is NaN every weight is `nan_weight` instead. `excluded`: (predicate, scores where it holds)
    if the scores are minus infinity elsewhere and the predicate does not depend on the product. Without a maximum (`top` is
    ""): (predicate, the weight where it holds) if the only weight is 0 elsewhere and no sum reads it.

    `finite`: sums that equal one of `sums`, except that they subtract 0 instead of an infinite maximum. `row_values`: other
    lets with one value per row, computed from its maximum and sums.
    """

    firsts: tuple[ContractionShape, ...]
    second: ContractionShape
    rows: str
    keys: str
    scores: str
    top: str
    sums: tuple[str, ...]
    weight: tuple[ir.RegionExpr, ...]
    times: tuple[ir.RegionExpr, ...]
    over: tuple[ir.RegionExpr, ...]
    nan_sum: str
    nan_weight: Scalar
    excluded: tuple[ir.RegionExpr, ir.RegionExpr] | None
    finite: Mapping[str, str]
    row_values: tuple[str, ...]

    @property
    def first(self) -> ContractionShape:
        """The first of the first products, on which the scores depend."""
        return self.firsts[0]

    def is_of_a_row(self, let: str) -> bool:
        """True if the value of `let` is one number per row, known after all keys have been read."""
        return let in (self.top, *self.sums, *self.finite, *self.row_values)


def find_online(region: ir.Region) -> Online | str:
    """The streaming pair in a form that blocks can be joined to, or the reason why it has none."""
    found = find_streaming_pair(region)
    if found is None:
        return "no contraction reads the result of another along its own k"
    try:
        return _Finder(region, *found).online()
    except Refused as why:
        return str(why)


def is_rounding(e: ir.RegionExpr) -> TypeGuard[ir.Cast | ir.Unary]:
    """True if `e` is its operand rounded to fewer digits."""
    return (isinstance(e, ir.Cast) and not e.bits and e.to.is_float) or (isinstance(e, ir.Unary) and e.fn == "tf32")


class _Finder(WeightFactors):
    def __init__(self, region: ir.Region, first: str, second: str) -> None:
        self.region = region
        self.lets = lets_by_name(region)
        self.axes = frozenset(all_axes(region))
        shapes = {s.acc: s for s in find_contractions(region)}
        self.first, self.second = shapes[first], shapes[second]
        self.firsts = [s for s in shapes.values() if s.acc != second]
        for s in self.firsts:
            if any(depends_on(s.acc, other, self.lets) for other in shapes if other != s.acc):
                raise Refused(f"{s.acc} is made of another contraction, and is not the last")
        if len(self.second.k) != 1:
            raise Refused(f"the second contraction runs over {len(self.second.k)} axes; the template takes 1")
        self.keys = self.second.k[0]
        self.reduces = {
            let.name: let.expr
            for let in region.lets
            if isinstance(let.expr, ir.Reduce) and let.name not in shapes and self.keys in let.expr.axes
        }
        self.top = ""

    def online(self) -> Online:
        second = self.second_as_rows()
        found = [self.oriented(first, second) for first in self.firsts]
        (first, second), firsts = found[0], tuple(first for first, _ in found)
        if any(f.m != first.m or set(f.batch) != set(first.batch) for f in firsts):
            raise Refused("the first contractions have different rows")
        rows = first.m[0]
        between = self.between()
        self.top = self.find_top()
        if self.reduces and len(firsts) > 1:
            raise Refused(f"its rows are reduced, and its weights made of {len(firsts)} contractions")
        scores = self.scores()
        for name in self.reduces:
            if name != self.top:
                self.check_sum(name, scores)
        finite = self.finite_sums()
        sums = tuple(n for n in self.reduces if n != self.top and n not in finite)
        product = self.product_of(second.lhs)
        for factor in product.tile:
            self.check_tile(factor, scores)
            self.check_whole(factor)
        for let in between:
            if {*let.axes} - {*first.batch, rows, self.keys}:
                raise Refused(f"{let.name} has axes of its own")
        row_values = self.row_values(between, first.batch, rows)
        self.check_rest(second, {self.top, *self.reduces, *row_values})
        self.check_numbers(scores)
        excluded = self.exclusion(scores) if self.top else self.weight_exclusion(product.tile)
        return Online(
            firsts, second, rows, self.keys, scores, self.top, sums,
            product.tile, product.times, product.over, product.nan_sum, product.nan_weight, excluded,
            finite, row_values,
        )  # fmt: skip

    def follows_first(self, let: str) -> bool:
        return any(depends_on(let, first.acc, self.lets) for first in self.firsts)

    def second_as_rows(self) -> ContractionShape:
        """The second contraction with the weights on its left."""
        second = self.second
        if not any(map(self.follows_first, used_lets(second.lhs))):
            second = ContractionShape(second.acc, second.batch, second.n, second.m, second.k, second.rhs, second.lhs)
        if any(map(self.follows_first, used_lets(second.rhs))):
            raise Refused("both operands of the second contraction depend on the first")
        return second

    def oriented(self, first: ContractionShape, second: ContractionShape) -> tuple[ContractionShape, ContractionShape]:
        if first.m == (self.keys,):
            first = ContractionShape(first.acc, first.batch, first.n, first.m, first.k, first.rhs, first.lhs)
        if len(first.m) > 1 and second.m == first.m:  # the keys are the same for all but the last: heads that share them
            batch, m = (*first.batch, *first.m[:-1]), first.m[-1:]
            first = msgspec.structs.replace(first, batch=batch, m=m)
            second = msgspec.structs.replace(second, batch=(*second.batch, *second.m[:-1]), m=m)
        if first.n != (self.keys,) or len(first.m) != 1 or second.m != first.m:
            raise Refused(f"rows {', '.join(first.m) or 'none'}, columns {', '.join(first.n)}; the template takes 1 axis each")
        if set(first.batch) != set(second.batch) or not second.n:
            raise Refused("the two contractions have different batch axes")
        return first, second

    def between(self) -> list[ir.Let]:
        """Lets that depend on the first contraction and lead to the second."""
        return [
            let
            for let in self.region.lets
            if let.name not in (self.second.acc, *(first.acc for first in self.firsts))
            and self.follows_first(let.name)
            and not depends_on(let.name, self.second.acc, self.lets)
        ]

    def find_top(self) -> str:
        tops = [n for n, e in self.reduces.items() if e.fn == "max"]
        if len(tops) > 1 or any(e.fn not in ("max", "sum") or len(e.axes) != 1 for e in self.reduces.values()):
            raise Refused("its rows are reduced by more than sums and one maximum")
        for name in tops:
            e = self.reduces[name]
            if self.needs_reduce(e.body):
                raise Refused(f"{name} is the maximum of what other reduces of the row give")
            if e.init is not None and number(e.init) != float("-inf"):
                raise Refused(f"{name} does not start at minus infinity")
        return tops[0] if tops else ""

    def scores(self) -> str:
        if not self.top:
            return self.first.acc
        body = self.reduces[self.top].body
        name = let_of(body, self.lets)
        if not name or set(self.lets[name].axes) != {*self.lets[self.first.acc].axes}:
            raise Refused(f"{self.top} is not the maximum of a let")
        return name

    def finite_sums(self) -> dict[str, str]:
        """Sum of exp(score - (0 where isinf(top) else top)) → the sum of exp(score - top), which is equal if the maximum is
        finite."""
        found = [n for n, e in self.reduces.items() if self.is_shifted(e.body, finite=True)]
        plain = next((n for n, e in self.reduces.items() if self.is_shifted(e.body)), "")
        if found and not plain:
            raise Refused(f"{found[0]} subtracts finite maxima only, and no sum subtracts all")
        return dict.fromkeys(found, plain)

    def row_values(self, between: list[ir.Let], batch: tuple[str, ...], rows: str) -> tuple[str, ...]:
        known = {self.top, *self.reduces}
        out: list[str] = []
        for let in between:
            of_row = let.name not in known and set(let.axes) == {*batch, rows}
            if of_row and all(u in {*known, *out} for u in used_lets(let.expr)):
                out.append(let.name)
        return tuple(out)

    def exclusion(self, scores: str) -> tuple[ir.RegionExpr, ir.RegionExpr] | None:
        e: ir.RegionExpr = self.lets[scores].expr
        while (name := let_of(e, self.lets)) and name != self.first.acc:
            e = self.lets[name].expr
        return self.masked(e, float("-inf"))

    def weight_exclusion(self, weight: tuple[ir.RegionExpr, ...]) -> tuple[ir.RegionExpr, ir.RegionExpr] | None:
        """`masked` for a single weight that is 0 elsewhere, seen through roundings, which keep 0; None if there is no such
        form, or if the pair has reduces."""
        if len(weight) != 1 or self.reduces:
            return None
        e, roundings = self.through(weight[0]), []
        while is_rounding(e):
            roundings.append(e)
            e = self.through(e.x)
        found = self.masked(e, 0.0)
        if found is None:
            return None
        predicate, value = found
        for rounding in reversed(roundings):
            value = msgspec.structs.replace(rounding, x=value)
        return predicate, value

    def masked(self, e: ir.RegionExpr, elsewhere: float) -> tuple[ir.RegionExpr, ir.RegionExpr] | None:
        """(predicate, value) of a select that is the number `elsewhere` where the predicate fails, if the predicate does not
        depend on the product; else None."""
        if not isinstance(e, ir.Select) or not isinstance(e.other, ir.Const) or number(e.other.value) != elsewhere:
            return None
        uses = [n.let for n in nodes(e.pred) if isinstance(n, ir.Ref | ir.At)]
        return None if any(map(self.follows_first, uses)) else (e.pred, e.then)

    def check_sum(self, name: str, scores: str) -> None:
        e = self.reduces[name]
        if e.init is not None and number(e.init) != 0:
            raise Refused(f"{name} starts at {e.init}")
        product = self.product_of(e.body)
        outside = [*product.times, *product.over]
        if product.nan_sum or any(self.needs_reduce(x) for x in outside):
            raise Refused(f"{name} is a sum of what other sums of the row give")
        for factor in (*product.tile, *outside):
            self.check_tile(factor, scores)
            if len(product.tile) > 1 or outside:
                self.check_whole(factor)

    def check_whole(self, factor: ir.RegionExpr) -> None:
        if self.is_shifted(factor, finite=True):
            raise Refused("a weight subtracts finite maxima only")

    def check_tile(self, factor: ir.RegionExpr, scores: str) -> None:
        """Refuse a factor that depends on values other than the scores (or on any but the first products if there is no
        maximum): only they are kept on chip."""
        kept = {scores} if self.top else {first.acc for first in self.firsts}
        stack = [*used_lets(factor)]
        while stack:
            name = stack.pop()
            if name == self.first.acc and name not in kept:
                raise Refused(f"a weight depends on {name} in addition to {scores}")
            if name not in kept and name in self.lets:
                stack.extend(used_lets(self.lets[name].expr))

    def check_rest(self, second: ContractionShape, of_rows: set[str]) -> None:
        """Refuse Regions in which anything but the second contraction's epilogue and the lets `of_rows` depends on the pair."""
        after = {second.acc, *epilogue_of(self.region, second.acc)}
        for y in self.region.yields:
            if y.source not in after | of_rows:
                raise Refused(f"{y.source} is written, and is not made from the second contraction in place")
        for let in self.region.lets:
            if let.name not in after and depends_on(let.name, second.acc, self.lets) and let.name != second.acc:
                raise Refused(f"{let.name} follows the second contraction and is not an epilogue")
            known = (second.acc, *(first.acc for first in self.firsts), *self.reduces)
            if isinstance(let.expr, ir.Reduce | ir.Scan) and let.name not in known:
                raise Refused(f"{let.name} reduces or scans and does not belong to the pair")

    def check_numbers(self, scores: str) -> None:
        """Refuse mixed dtypes: the products, whose sums must start at zero, and all reduces have one float dtype."""
        products = [self.lets[s.acc].expr for s in (*self.firsts, self.second)]
        dtypes = {e.dtype for e in products if isinstance(e, ir.Reduce)} | {self.lets[n].dtype for n in (scores, *self.reduces)}
        dtypes |= {e.dtype for e in self.reduces.values()}
        if len(dtypes) != 1 or not dtypes <= {DType.fp32, DType.fp64}:
            raise Refused(f"it computes in {', '.join(sorted(map(str, dtypes)))}; the template takes fp32 or fp64 throughout")
        if any(isinstance(e, ir.Reduce) and e.init is not None and number(e.init) != 0 for e in products):
            raise Refused("a contraction does not start at zero")


def reads_along(e: ir.RegionExpr, along: Set[str], lets: Mapping[str, ir.Let], axes: frozenset[str], known: str = "") -> bool:
    """True if `e` reads memory at positions that move with all of `along`. Let `known` counts as computed already."""
    seen = {known}
    stack = [e]
    while stack:
        x = stack.pop()
        for n in nodes(x):
            if isinstance(n, ir.Read | ir.ReadAt) and along <= free_axes(n, lets, axes):
                return True
            if isinstance(n, ir.Ref | ir.At) and n.let not in seen:
                seen.add(n.let)
                stack.append(lets[n.let].expr)
    return False
