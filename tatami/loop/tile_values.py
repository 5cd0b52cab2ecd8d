"""Region expressions as loop values at one place of a tile: scalar, or `lanes` neighbours along one variable.

Axes are bound to index expressions; lets become registers, or are evaluated again where a map moves them. A guarded
read (`Select` on a `Within`) becomes a register under an `If`, so nothing outside a tensor is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, free_vars, substitute
from tatami.core.layout import MemRef, address
from tatami.loop import ir as loop
from tatami.loop.ir import type_of
from tatami.loop.segments import step_of
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
    Let,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    RegionExpr,
    Scan,
    Select,
    Transpose,
    Unary,
    Within,
)
from tatami.region.walk import Types, is_widening, substitute_axes


class NotVectorised(Exception):
    """The expression has no form with several lanes along the chosen variable; one lane always works."""


class Tensor:
    """A tensor of the Region as a buffer of the kernel."""

    def __init__(self, buffer: str, memref: MemRef) -> None:
        self.buffer = buffer
        self.memref = memref

    def address(self, index: tuple[Expr, ...], values: Mapping[str, Expr]) -> Expr:
        return substitute(address(self.memref.layout, self.memref.shape, index), values)


class Place:
    """Where values are taken: `values` binds axes and size symbols; with lanes > 1, `along` is the variable that counts
    up from lane to lane. Statements that the values need are collected in `body`."""

    def __init__(
        self,
        region: str,
        tensors: Mapping[str, Tensor],
        lets: Mapping[str, Let],
        types: Types,
        values: Mapping[str, Expr],
        fresh: Callable[[], str],
        lanes: int = 1,
        along: str = "",
    ) -> None:
        self.region = region
        self.tensors = tensors
        self.lets = lets
        self.types = types
        self.values = dict(values)
        self.fresh = fresh
        self.lanes = lanes
        self.along = along
        self.registers: dict[str, loop.Value] = {}
        self.body: list[loop.Stmt] = []

    def index(self, e: Expr) -> Expr:
        return substitute(e, self.values)

    def step(self, e: Expr) -> Expr | None:
        """The change from lane to lane; None for one lane or where it does not change."""
        if self.lanes == 1 or self.along not in free_vars(e):
            return None
        by = step_of(e, self.along)
        if by is None:
            raise NotVectorised
        return by

    def load(self, buffer: str, at: Expr, dtype: DType) -> loop.Value:
        """The element(s) at an address over loop variables."""
        by = self.step(at)
        if by is None:
            return loop.Load(buffer, at, dtype)
        if by.as_int() == 1:
            return loop.Load(buffer, at, dtype, self.lanes)
        return loop.Gather(buffer, at, by, dtype, self.lanes)

    def value(self, e: RegionExpr, wanted: DType | None = None) -> loop.Value:
        match e:
            case Read(tensor=tensor, map=entries):
                source = self.tensors[tensor]
                return self.load(source.buffer, source.address(entries, self.values), source.memref.dtype)
            case Const(value=value, dtype=dtype):
                return loop.Const(value, dtype)
            case Index(value=value, dtype=dtype):
                at = self.index(value)
                by = self.step(at)
                return loop.IndexOf(at, dtype) if by is None else loop.IndexOf(at, dtype, self.lanes, by)
            case Within(guards=guards):
                bound = tuple(type(g)(self.index(g.index), self.index(g.size)) for g in guards)
                if any(self.step(g.index) is not None for g in bound):
                    raise NotVectorised
                return loop.Within(bound)
            case Unary(fn=fn, x=x):
                return loop.Op(fn, (self.value(x),))
            case Binary(fn=fn, x=x, y=y):
                args = [self.value(x), self.value(y)]
                operand = type_of(args[0]).dtype
                if wanted is not None and operand == type_of(args[1]).dtype and is_widening(fn, operand, wanted):
                    args = [loop.Cast(a, wanted) for a in args]
                return loop.Op(fn, self.same_lanes(args))
            case Select(pred=Within() as pred, then=then, other=other):
                return self.guarded(self.value(pred), then, other, wanted)
            case Select(pred=pred, then=then, other=other):
                return loop.Op(
                    "where", self.same_lanes([self.value(pred), self.value(then, wanted), self.value(other, wanted)])
                )
            case Cast(x=x, to=to, bits=bits):
                value = self.value(x)
                return value if type_of(value).dtype == to else loop.Cast(value, to, bits)
            case Ref(let=let):
                return self.let(let)
            case At(let=name, map=entries):
                moved = self.lets[name]
                return self.value(
                    substitute_axes(moved.expr, dict(zip(moved.axes, entries, strict=True)), self.lets), moved.dtype
                )
            case Random(key=key, counter=counter):
                if self.lanes != 1:
                    raise NotVectorised
                return loop.Random(self.value(key), self.index(counter))
            case ReadAt() | Reduce() | Scan() | BroadcastInDim() | Transpose():
                raise self.refuse(f"{type(e).__name__} stands beside the contraction")
            case _:
                assert_never(e)

    def let(self, name: str) -> loop.Value:
        if name not in self.registers:
            let = self.lets[name]
            value = self.value(let.expr, let.dtype)
            kind = type_of(value)
            reg = loop.Reg(self.fresh(), kind.dtype, kind.lanes)
            self.body.append(loop.Declare(reg, value))
            self.registers[name] = reg
        return self.registers[name]

    def guarded(self, pred: loop.Value, then: RegionExpr, other: RegionExpr, wanted: DType | None) -> loop.Value:
        outside = self.value(other, wanted)
        saved, self.body, known = self.body, [], dict(self.registers)
        try:
            inside = self.value(then, wanted)
        finally:
            inner, self.body = self.body, saved
            self.registers = known
        lanes = max(type_of(inside).lanes, type_of(outside).lanes)
        reg = loop.Reg(self.fresh(), type_of(inside).dtype, lanes)
        self.body.append(loop.Declare(reg, self.spread(outside, lanes)))
        self.body.append(loop.If(pred, (*inner, loop.Assign(reg, self.spread(inside, lanes)))))
        return reg

    def same_lanes(self, args: list[loop.Value]) -> tuple[loop.Value, ...]:
        lanes = max(type_of(a).lanes for a in args)
        return tuple(self.spread(a, lanes) for a in args)

    @staticmethod
    def spread(value: loop.Value, lanes: int) -> loop.Value:
        return value if type_of(value).lanes == lanes else loop.Splat(value, lanes)

    def refuse(self, why: str) -> TatamiError:
        return fail(
            "InvalidPlan", self.region, f"cpu_contraction does not fit: {why}", "choose the plan kind scalar or cpu_rows"
        )
