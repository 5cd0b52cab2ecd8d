"""The value of a Region expression at one point or at `lanes` neighbouring points, as statements and registers.

Whatever depends on the lane and has no vector form is computed lane by lane with the scalar code, so every expression has a
vector form. A guarded read happens only where its guard holds (C-16, D2.16): no read leaves its tensor.
"""

from __future__ import annotations

from typing import assert_never

from tatami.core.algebra.bounds import is_within
from tatami.core.algebra.order import is_always_at_most
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, var
from tatami.core.layout import MemRef
from tatami.core.ops import neutral
from tatami.core.scalar import Scalar, scalar
from tatami.indexbook.ir import Guard
from tatami.loop.emit.blocks import Blocks, Point
from tatami.loop.emit.ranges import ANY, comparison, room
from tatami.loop.ir import (
    Assign,
    Cast,
    Const,
    Declare,
    Fault,
    For,
    Gather,
    If,
    IndexOf,
    Lane,
    LaneRange,
    Load,
    Op,
    Random,
    Reg,
    SetLane,
    Splat,
    Stmt,
    Value,
    Within,
    type_of,
)
from tatami.region import ir as region_ir
from tatami.region.ir import RegionExpr
from tatami.region.walk import children
from tatami.tiny.ir import Bounds


class Emitter(Blocks):
    """Values of Region expressions as statements."""

    def by_lane(self, e: RegionExpr, p: Point) -> Value:
        """`e` at `p` as a vector, computed lane by lane with scalar code."""

        def one(position: Expr) -> Value:
            env = {a: substitute(x, {p.vector: position}) for a, x in p.env.items()}
            return self.value(e, Point(env))

        return self.lanewise(self.typer.dtype(e), p, one)

    # -- expressions -----------------------------------------------------------------------------
    def value(self, e: RegionExpr, p: Point) -> Value:
        """`e` at `p`, with one lane when it is the same for all lanes of `p`."""
        match e:
            case region_ir.Read(tensor=tensor, map=map_):
                return self.read(tensor, tuple(p.at(x) for x in map_), p)
            case region_ir.At(let=let, map=map_):
                return self.let_at(let, tuple(p.at(x) for x in map_), p)
            case region_ir.ReadAt():
                return self.read_at(e, p)
            case region_ir.Const(value=value, dtype=dtype):
                return Const(value, dtype)
            case region_ir.Index(value=value, dtype=dtype):
                return self.index(p.at(value), dtype, p)
            case region_ir.Within(guards=guards):
                return self.within(tuple(Guard(p.at(g.index), p.at(g.size)) for g in guards), p)
            case region_ir.Unary(fn=fn, x=x):
                return Op(fn, (self.value(x, p),))
            case region_ir.Binary(fn=fn, x=x, y=y):
                known = self.decided(e, p)
                if known is not None:
                    return Const(known, DType.bool)
                lanes = self.lanes_that_hold(e, p)
                return self.binary(fn, x, y, p) if lanes is None else lanes
            case region_ir.Select():
                return self.select(e, p)
            case region_ir.Cast(x=x, to=to, bits=bits):
                inner = self.value(x, p)
                return inner if type_of(inner).dtype == to else Cast(inner, to, bits)
            case region_ir.Random(key=key, counter=counter):
                return self.random(e, key, p.at(counter), p)
            case region_ir.Reduce() | region_ir.Scan() | region_ir.Ref() | region_ir.BroadcastInDim() | region_ir.Transpose():
                raise TypeError(type(e).__name__)
            case _:
                assert_never(e)

    def binary(self, fn: str, x: RegionExpr, y: RegionExpr, p: Point) -> Value:
        """``fn(x, y)`` at `p`. A power of 1, 2 or 3 becomes multiplications; division by a softmax sum becomes a product with
        its reciprocal."""
        a, b = self.level(self.value(x, p), self.value(y, p))
        if fn == "pow" and isinstance(y, region_ir.Const) and type_of(a).dtype in (DType.fp32, DType.fp64):
            if y.value == 2:
                a = self.named(a)
                return Op("mul", (a, a))
            if y.value == 3:
                a = self.named(a)
                return Op("mul", (Op("mul", (a, a)), a))
            if y.value == 1:
                return a
        if fn == "div" and isinstance(y, region_ir.At) and self.is_softmax_sum(y.let) and type_of(a).dtype == DType.fp32:
            sum_ = self.value(y, p)
            if type_of(sum_).lanes == 1:  # in vectors and in the tail alike: equal inputs give equal results
                key = ("recip", sum_)
                factor = self.recall(key)
                if factor is None:
                    factor = self.declare(Op("recip", (sum_,)))
                    self.remember(key, factor)
                return Op("mul", self.level(a, factor))
        return Op(fn, (a, b))

    def is_softmax_sum(self, name: str) -> bool:
        """True if the let is a sum of ``exp(x - max)``: at least 1, so that one reciprocal may replace many divisions."""
        reduce = self.lets[name].expr
        if not isinstance(reduce, region_ir.Reduce) or reduce.fn != "sum":
            return False
        body = self.through(reduce.body)
        if not isinstance(body, region_ir.Unary) or body.fn != "exp":
            return False
        inner = self.through(body.x)
        if not isinstance(inner, region_ir.Binary) or inner.fn != "sub":
            return False
        top = inner.y
        if not isinstance(top, region_ir.At):
            return False
        highest = self.lets[top.let].expr
        return isinstance(highest, region_ir.Reduce) and highest.fn == "max" and highest.axes == reduce.axes

    def through(self, e: RegionExpr) -> RegionExpr:
        """The expression of a map let behind a plain reference."""
        while isinstance(e, region_ir.At) and self.lets[e.let].kind == "map":
            e = self.lets[e.let].expr
        return e

    def named(self, value: Value) -> Value:
        """A register (or constant) for a value that is used twice."""
        return value if isinstance(value, (Reg, Const)) else self.declare(value)

    def read(self, tensor: str, index: tuple[Expr, ...], p: Point) -> Value:
        """The tensor's elements at `index`, loaded once per block."""
        addr = self.address(tensor, index)
        key = ("read", tensor, addr, p.lanes if p.vector in free_vars(addr) else 1)
        known = self.recall(key)
        if known is None:
            known = self.declare(self.load(self.moved.get(tensor, tensor), addr, self.memrefs[tensor].dtype, p))
            self.remember(key, known)
        return known

    def let_key(self, let: str, index: tuple[Expr, ...], p: Point) -> object:
        """Key of a let's value at an index; equal for all lane counts if the index does not depend on the lane."""
        depends = p.vector and any(p.vector in free_vars(x) for x in index)
        return ("let", let, index, p.lanes if depends else 1)

    def let_at(self, name: str, index: tuple[Expr, ...], p: Point) -> Value:
        """A let at an index: a register computed before, its buffer, or its expression there and then."""
        key = self.let_key(name, index, p)
        known = self.recall(key) or self.lane_of_let(name, index)
        if known is not None:
            return known
        let = self.lets[name]
        stored = self.stored.get(name)
        if stored is not None:
            value = self.load(stored.buffer, self.stored_address(stored, let, index), stored.dtype, p)
        else:
            if let.kind != "map":
                raise ValueError(f"{name} is read before it is computed")
            value = self.value(let.expr, Point(dict(zip(let.axes, index, strict=True)), p.vector, p.lanes, p.row))
            if isinstance(value, Const):
                return value
        reg = value if isinstance(value, Reg) else self.declare(value)
        self.remember(key, reg)
        return reg

    def lane_of_let(self, name: str, index: tuple[Expr, ...]) -> Value | None:
        """The lane of a vector of that let, for a read inside a loop over lanes; None if no register holds such a vector."""
        for vector, q, lanes in self.lane_loops:
            first = tuple(substitute(x, {q: ZERO}) for x in index)
            known = self.recall(("let", name, first, lanes))
            if known is not None and index == tuple(substitute(x, {vector: var(vector) + var(q)}) for x in first):
                return Lane(known, var(q)) if type_of(known).lanes > 1 else known
        return None

    def index(self, value: Expr, dtype: DType, p: Point) -> Value:
        """An index expression as a value of `dtype`: one lane if it is the same for all lanes of `p`."""
        value = self.simplified(value)
        step = self.step(value, p)
        if step is None:
            return self.lanewise(dtype, p, lambda q: _index_value(substitute(value, {p.vector: q}), dtype, 1, None))
        if step == ZERO:
            return _index_value(value, dtype, 1, None)
        return _index_value(value, dtype, p.lanes, step)

    def decided(self, e: region_ir.Binary, p: Point) -> bool | None:
        """The result of comparing an index with a number, if the same for all iterations of the loops; else None."""
        g = comparison(e)
        if g is None:
            return None
        left = p.at(g.index)
        if not self.is_of_loops(left):
            return None
        return True if is_within(left, ANY, self.extents) else False if is_within(-left - 1, ANY, self.extents) else None

    def lanes_that_hold(self, e: region_ir.Binary, p: Point) -> Value | None:
        """The lanes for which an index is below another one, as a range, if one moves by one from lane to lane and the other stays:
        numbers of 64 bits are compared by several instructions for each part of a vector. None for other operands."""
        sides = [s.value for s in (e.x, e.y) if isinstance(s, region_ir.Index) and s.dtype in (DType.i32, DType.i64)]
        if len(sides) < 2 or p.lanes < 2:
            return None
        left = room(e.fn, *sides)
        if left is None:
            return None
        above = self.simplified(p.at(left))
        step = self.step(above, p)
        if step == ONE:
            return LaneRange(-above, expr(p.lanes), p.lanes)
        return LaneRange(ZERO, above + 1, p.lanes) if step == -ONE else None

    def is_of_loops(self, e: Expr) -> bool:
        """True if all variables of `e` are loop variables. Bounds would take sizes among them to be at least 1."""
        return free_vars(e) <= self.extents.keys()

    def is_outside(self, g: Guard) -> bool:
        """True if the guard fails in all iterations of the loops."""
        if not self.is_of_loops(g.index - g.size):
            return False
        return any(is_within(distance, ANY, self.extents) for distance in (-g.index - 1, g.index - g.size))

    def within(self, guards: tuple[Guard, ...], p: Point) -> Value:
        """The conjunction of guards, one lane when no guard depends on the lane."""
        if any(self.is_outside(g) for g in guards):
            return Const(False, DType.bool)
        left = [g for g in guards if not is_within(g.index, g.size, self.extents)]
        uniform = tuple(g for g in left if self.step(g.index, p) == ZERO and self.step(g.size, p) == ZERO)
        parts: list[Value] = [Within(uniform)] if uniform else []
        for g in left:
            if g in uniform:
                continue
            step = self.step(g.index, p)
            if step == ONE and self.step(g.size, p) == ZERO:
                parts.append(LaneRange(-g.index, g.size - g.index, p.lanes))
            elif step == -ONE and self.step(g.size, p) == ZERO:
                parts.append(LaneRange(g.index - g.size + 1, g.index + 1, p.lanes))
            else:
                parts.append(self.lanewise(DType.bool, p, lambda q, g=g: Within((_move(g, p.vector, q),))))  # type: ignore[misc]
        if not parts:
            return Const(True, DType.bool)
        out = parts[0]
        for part in parts[1:]:
            out = Op("and", self.level(out, part))
        return out

    def select(self, e: region_ir.Select, p: Point) -> Value:
        """`where`; a side that reads memory is evaluated only where its side of the predicate is taken."""
        lazy = (_reads(e.then) or _reads(e.other)) and self.guards_reads(e.pred)
        if not lazy:
            pred = self.value(e.pred, p)
            if isinstance(pred, Const):
                return self.value(e.then if pred.value else e.other, p)
            if p.vector and type_of(pred).lanes == 1 and comparison(e.pred) and (_reads(e.then) or _reads(e.other)):
                return self.branch(pred, e.then, e.other, p)
            then, other = (self.value(x, p) for x in (e.then, e.other))
            return Op("where", self.level(pred, then, other))
        with self.block() as test:
            pred = self.value(e.pred, p)
        if isinstance(pred, Const):
            return self.value(e.then if pred.value else e.other, p)
        if type_of(pred).lanes == 1:
            self.emit(*test)
            return self.branch(pred, e.then, e.other, p)
        inside = self.ends_within(e.pred, p)
        if inside is None:
            return self.by_lane(e, p)
        # All lanes inside: one vector; none inside: the other side; else lane by lane.
        reg = self.declare(Splat(Const(0, self.typer.dtype(e)), p.lanes))
        with self.block() as whole:
            self.emit(Assign(reg, self.widen(self.value(e.then, p), p.lanes)))
        with self.block() as parts:
            self.emit(Assign(reg, self.by_lane(e, p)))
        self.emit(If(inside, tuple(whole), self.unless_outside(e, p, reg, tuple(parts))))
        return reg

    def unless_outside(self, e: region_ir.Select, p: Point, reg: Reg, parts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """`parts`, but where a guard holds for no lane: there the other side, if it is a constant."""
        if not isinstance(e.pred, region_ir.Within) or not isinstance(e.other, region_ir.Const):
            return parts
        none = (Assign(reg, self.widen(Const(e.other.value, e.other.dtype), p.lanes)),)
        for g in e.pred.guards:
            index, size = p.at(g.index), p.at(g.size)
            step = (self.step(index, p) or ZERO).as_int()
            if step is None:
                continue
            other_end = index + step * (p.lanes - 1)
            least, most = (index, other_end) if step >= 0 else (other_end, index)
            before, after = (Within((Guard(distance, ANY),)) for distance in (-most - 1, least - size))
            parts = (If(before, none, (If(after, none, parts),)),)
        return parts

    def branch(self, pred: Value, then: RegionExpr, other: RegionExpr, p: Point) -> Value:
        """A register that has the value of `then` if `pred` is True, else that of `other`; only one of the two is computed."""
        dtype = self.typer.dtype(then)
        with self.block() as yes:
            a = self.value(then, p)
        with self.block() as no:
            b = self.value(other, p)
        lanes = max(type_of(a).lanes, type_of(b).lanes)
        zero: Value = Const(0, dtype)
        reg = Reg(self.fresh("v"), dtype, lanes)
        if isinstance(b, Const):
            self.emit(Declare(reg, self.widen(b, lanes)))
            self.emit(If(pred, (*yes, Assign(reg, self.widen(a, lanes)))))
        else:
            self.emit(Declare(reg, self.widen(zero, lanes)))
            self.emit(If(pred, (*yes, Assign(reg, self.widen(a, lanes))), (*no, Assign(reg, self.widen(b, lanes)))))
        return reg

    def guards_reads(self, pred: RegionExpr) -> bool:
        """True if the predicate contains a Within, lets included that are evaluated in place."""
        stack = [pred]
        while stack:
            e = stack.pop()
            if isinstance(e, region_ir.Within):
                return True
            if isinstance(e, region_ir.At) and e.let not in self.stored and self.lets[e.let].kind == "map":
                stack.append(self.lets[e.let].expr)
            stack.extend(children(e))
        return False

    def ends_within(self, pred: RegionExpr, p: Point) -> Value | None:
        """A test that holds if all lanes are inside, for a Within whose guards are affine in the lane; None for any other
        predicate."""
        if not isinstance(pred, region_ir.Within):
            return None
        ends: list[Guard] = []
        for g in pred.guards:
            index, size = p.at(g.index), p.at(g.size)
            step = self.step(index, p)
            if step is None or self.step(size, p) != ZERO:
                return None
            ends.append(Guard(index, size))
            if step != ZERO:
                ends.append(Guard(index + step * (p.lanes - 1), size))
        return Within(tuple(ends))

    def random(self, e: RegionExpr, key: RegionExpr, counter: Expr, p: Point) -> Value:
        """The Philox words at `counter`: a vector if the counter grows by one per lane and the key is the same, else lane by
        lane."""
        step = self.step(counter, p)
        if step is None or step not in (ZERO, ONE):
            return self.by_lane(e, p)
        with self.block() as before:
            k = self.value(key, p)
        if type_of(k).lanes != 1:
            return self.by_lane(e, p)
        self.emit(*before)
        return Random(self.named(k), counter, p.lanes if step == ONE else 1)

    # -- indexed reads ---------------------------------------------------------------------------
    def read_at(self, e: region_ir.ReadAt, p: Point) -> Value:
        """A read at computed positions, with the bounds policy of the expression: outside the tensor it has 0 or a fault."""
        with self.block() as before:
            values = [self.value(i, p) for i in e.indices]
        self.emit(*before)
        if any(type_of(v).lanes != 1 for v in values):
            return self.gathered(e, values, p)
        m = self.memrefs[e.tensor]
        index, guards = self.indices(tuple(None if x is None else p.at(x) for x in e.map), values, m.shape, e.bounds)
        addr = self.address(e.tensor, index)
        if not guards:
            return self.load(self.moved.get(e.tensor, e.tensor), addr, m.dtype, p)
        with self.block() as read:
            value = self.load(self.moved.get(e.tensor, e.tensor), addr, m.dtype, p)
        lanes = type_of(value).lanes
        reg = Reg(self.fresh("v"), m.dtype, lanes)
        self.emit(Declare(reg, self.widen(Const(0, m.dtype), lanes)))
        fault: tuple[Stmt, ...] = (Fault(1),) if e.bounds in ("error", "wrap") else ()
        self.emit(If(Within(guards), (*read, Assign(reg, value)), fault))
        return reg

    def gathered(self, e: region_ir.ReadAt, values: list[Value], p: Point) -> Value:
        """A read at positions of its own for every lane: the indices in vectors, then element by element."""
        m = self.memrefs[e.tensor]
        sizes = [size for entry, size in zip(e.map, m.shape, strict=True) if entry is None]
        placed = iter(
            [self.named(self.bounded(self.as_index(v), size, e.bounds)) for v, size in zip(values, sizes, strict=True)]
        )
        picked = self.picked(e, m, p)
        if picked is not None:
            (own,) = placed
            base, stride = picked
            at = own if isinstance(own, Reg) and own.lanes > 1 else self.declare(self.widen(own, p.lanes))
            return Gather(self.moved.get(e.tensor, e.tensor), base, stride, m.dtype, p.lanes, at=at)
        out = self.declare(Splat(Const(0, m.dtype), p.lanes))
        q = self.loop(expr(p.lanes), "q")
        index: list[Expr] = []
        guards: list[Guard] = []
        with self.block() as body:
            for entry, size in zip(e.map, m.shape, strict=True):
                if entry is not None:
                    index.append(substitute(p.at(entry), {p.vector: var(p.vector) + var(q)}))
                    continue
                own = next(placed)
                name = self.integer(Lane(own, var(q)) if isinstance(own, Reg) and own.lanes > 1 else own, size)
                index.append(var(name))
                if not is_inside(e.bounds, size):
                    guards.append(Guard(var(name), size))
            read = Load(self.moved.get(e.tensor, e.tensor), self.address(e.tensor, tuple(index)), m.dtype)
            fault: tuple[Stmt, ...] = (Fault(1),) if e.bounds in ("error", "wrap") else ()
            taken = SetLane(out, var(q), read)
            self.emit(If(Within(tuple(guards)), (taken,), fault) if guards else taken)
        self.emit(For(q, ZERO, expr(p.lanes), tuple(body)))
        return out

    def picked(self, e: region_ir.ReadAt, m: MemRef, p: Point) -> tuple[Expr, Expr] | None:
        """For lanes that read at positions along one axis that are known to be inside, with everything else constant: the
        address of position 0, and the distance between positions. None if the lanes have to be read one by one."""
        if not all(is_inside(e.bounds, n) for n in m.shape) or sum(x is None for x in e.map) != 1:
            return None
        first, second = (self.address(e.tensor, tuple(expr(k) if x is None else p.at(x) for x in e.map)) for k in (0, 1))
        third = self.address(e.tensor, tuple(expr(2) if x is None else p.at(x) for x in e.map))
        stride = second - first
        if p.vector in free_vars(first) | free_vars(stride) or third - second != stride:
            return None
        return first, stride

    def as_index(self, value: Value) -> Value:
        """`value` cast to i64, lane by lane."""
        return value if type_of(value).dtype == DType.i64 else Cast(value, DType.i64)

    def indices(
        self, map_: tuple[Expr | None, ...], values: list[Value], shape: tuple[Expr, ...], bounds: Bounds
    ) -> tuple[tuple[Expr, ...], tuple[Guard, ...]]:
        """Index expressions with the None entries taken from `values`, and the conditions to check before the access."""
        left = iter(values)
        index: list[Expr] = []
        guards: list[Guard] = []
        for entry, size in zip(map_, shape, strict=True):
            if entry is not None:
                index.append(entry)
                continue
            name = self.integer(self.bounded(self.as_index(next(left)), size, bounds), size)
            index.append(var(name))
            if not is_inside(bounds, size):
                guards.append(Guard(var(name), size))
        return tuple(index), tuple(guards)

    def bounded(self, number: Value, size: Expr, bounds: Bounds) -> Value:
        """`number` with positions outside moved inside, as far as the policy does so; every lane of it."""
        match bounds:
            case "wrap":
                number = self.named(number)
                negative = Op("lt", self.level(number, Const(0, DType.i64)))
                moved = Op("add", self.level(number, IndexOf(size, DType.i64)))
                return Op("where", (negative, moved, number))
            case "clamp":
                least = Op("max", self.level(self.named(number), Const(0, DType.i64)))
                return Op("min", self.level(least, IndexOf(size - 1, DType.i64)))
            case _:
                return number


# -- facts ---------------------------------------------------------------------------------------


def is_inside(bounds: Bounds, size: Expr) -> bool:
    """True if an index under that policy is inside its axis whatever its value was, so that no check precedes an access."""
    return bounds == "assume" or (bounds == "clamp" and is_always_at_most(ONE, size))


def _index_value(value: Expr, dtype: DType, lanes: int, step: Expr | None) -> Value:
    if dtype.is_int:
        return IndexOf(value, dtype, lanes, step)
    return Cast(IndexOf(value, DType.i64, lanes, step), dtype)


def _move(g: Guard, vector: str, position: Expr) -> Guard:
    return Guard(substitute(g.index, {vector: position}), substitute(g.size, {vector: position}))


def _reads(e: RegionExpr) -> bool:
    stack = [e]
    while stack:
        x = stack.pop()
        if isinstance(x, (region_ir.Read, region_ir.ReadAt, region_ir.At)):
            return True
        stack.extend(children(x))
    return False


def neutral_value(fn: str, dtype: DType) -> Const:
    """The value that does not change a reduce or scan by `fn`: 0 for sum, -INF or the least number for max, …"""
    return Const(_neutral(fn, dtype), dtype)


def _neutral(fn: str, dtype: DType) -> Scalar:
    if dtype == DType.bool:
        return fn in ("prod", "min", "and")
    return scalar(neutral(fn, dtype))
