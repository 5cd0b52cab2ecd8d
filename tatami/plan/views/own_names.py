"""A Region in our own names: p0… tensors, s0… sizes, x0… axes, l0… lets.

No name that a user wrote passes this point. Structurally equal Regions become equal values, so that their kernels are
one. The explicit forms BroadcastInDim and Transpose are read as the At they stand for.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import ZERO, Expr, var
from tatami.core.layout import MemRef
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
    Iter,
    Let,
    Param,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Select,
    Target,
    Transpose,
    Unary,
    Within,
    Yield,
)
from tatami.region.walk import children


class Names(msgspec.Struct):
    """The new name of each tensor, size symbol, axis and let. Inputs and outputs are numbered separately from any
    sharing: an output that updates an input is a parameter of its own."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    sizes: dict[str, str]
    axes: dict[str, str]
    lets: dict[str, str]

    def expr(self, e: Expr) -> Expr:
        """The expression in new names."""
        return substitute(e, self._vars)

    @property
    def _vars(self) -> dict[str, Expr]:
        return {k: var(v) for k, v in (*self.sizes.items(), *self.axes.items())}


def rename(region: Region) -> tuple[Region, Names]:
    """The Region in our own names, and how it was named before."""
    inputs = {p.name: f"p{i}" for i, p in enumerate(region.inputs)}
    outputs = {t.name: f"p{len(region.inputs) + i}" for i, t in enumerate(region.outputs)}
    axes = {it.name: f"x{i}" for i, it in enumerate((*region.iters, *region.reduce_axes))}
    lets = {let.name: f"l{i}" for i, let in enumerate(region.lets)}
    names = Names(inputs, outputs, _sizes_of(region, axes), axes, lets)
    return _Renamer(names, {let.name: let for let in region.lets}).region(region), names


def explicit(region: Region) -> Region:
    """The Region in its own names, every let read at coordinates that stand there (`At`)."""
    axes = {it.name: it.name for it in (*region.iters, *region.reduce_axes)}
    names = Names(
        {p.name: p.name for p in region.inputs},
        {t.name: t.name for t in region.outputs},
        {},
        axes,
        {let.name: let.name for let in region.lets},
    )
    made = _Renamer(names, {let.name: let for let in region.lets}).region(region)
    return msgspec.structs.replace(made, name=region.name)


def _sizes_of(region: Region, axes: dict[str, str]) -> dict[str, str]:
    """Every size symbol, in order of first appearance."""
    found: dict[str, None] = {}

    def see(*exprs: Expr | None) -> None:
        for e in exprs:
            if e is not None:
                for name in sorted(free_vars(e)):
                    if name not in axes:
                        found.setdefault(name)

    for it in (*region.iters, *region.reduce_axes):
        see(it.size)
    for memref in [p.memref for p in region.inputs] + [t.memref for t in region.outputs]:
        see(*memref.shape)
    for let in region.lets:
        stack: list[RegionExpr] = [let.expr]
        while stack:
            e = stack.pop()
            see(*index_exprs(e))
            stack.extend(reversed(children(e)))
    for y in region.yields:
        see(*(y.map or ()))
    return {name: f"s{i}" for i, name in enumerate(found)}


def index_exprs(e: RegionExpr) -> tuple[Expr | None, ...]:
    """The index expressions that stand directly in an expression."""
    match e:
        case Read(map=map_) | At(map=map_):
            return map_
        case ReadAt(map=gathered):
            return gathered
        case Index(value=value) | Random(counter=value):
            return (value,)
        case Within(guards=guards):
            return tuple(x for g in guards for x in (g.index, g.size))
        case BroadcastInDim(result_shape=shape):
            return shape
        case _:
            return ()


class _Renamer:
    def __init__(self, names: Names, lets: dict[str, Let]) -> None:
        self.n = names
        self.vars = {k: var(v) for k, v in (*names.sizes.items(), *names.axes.items())}
        self.lets = lets
        self.let_axes: tuple[str, ...] = ()
        self.sizes: dict[str, Expr] = {}

    def ix(self, e: Expr) -> Expr:
        return substitute(e, self.vars)

    def map(self, m: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(self.ix(e) for e in m)

    def region(self, r: Region) -> Region:
        n = self.n
        self.sizes = {it.name: it.size for it in (*r.iters, *r.reduce_axes)}
        lets: list[Let] = []
        for let in r.lets:
            self.let_axes = let.axes
            lets.append(Let(n.lets[let.name], tuple(n.axes[a] for a in let.axes), let.dtype, self.expr(let.expr)))
        return Region(
            name="r",
            iters=tuple(Iter(n.axes[i.name], self.ix(i.size)) for i in r.iters),
            reduce_axes=tuple(Iter(n.axes[i.name], self.ix(i.size)) for i in r.reduce_axes),
            inputs=tuple(Param(n.inputs[p.name], self.memref(p.memref)) for p in r.inputs),
            outputs=tuple(
                Target(n.outputs[t.name], self.memref(t.memref), t.materialize, n.inputs.get(t.updates, "")) for t in r.outputs
            ),
            lets=tuple(lets),
            yields=tuple(self.yield_(y) for y in r.yields),
            opaque=r.opaque and msgspec.structs.replace(r.opaque, operands=tuple(n.inputs[o] for o in r.opaque.operands)),
        )

    def memref(self, m: MemRef) -> MemRef:
        return msgspec.structs.replace(m, shape=self.map(m.shape))

    def yield_(self, y: Yield) -> Yield:
        map_ = None if y.map is None else tuple(None if e is None else self.ix(e) for e in y.map)
        return msgspec.structs.replace(
            y,
            source=self.n.lets[y.source],
            to=self.n.outputs[y.to],
            map=map_,
            indices=tuple(self.n.lets[i] for i in y.indices),
        )

    def expr(self, e: RegionExpr) -> RegionExpr:
        n = self.n
        match e:
            case Read(tensor=tensor, map=map_):
                return Read(n.inputs[tensor], self.map(map_))
            case ReadAt(tensor=tensor, map=gathered, indices=indices, bounds=bounds):
                entries = tuple(None if x is None else self.ix(x) for x in gathered)
                return ReadAt(n.inputs[tensor], entries, tuple(self.expr(i) for i in indices), bounds)
            case Ref(let=let):
                return At(n.lets[let], tuple(var(n.axes[a]) for a in self.lets[let].axes))
            case At(let=let, map=map_):
                return At(n.lets[let], self.map(map_))
            case Const():
                return e
            case Index(value=value, dtype=dtype):
                return Index(self.ix(value), dtype)
            case Within(guards=guards):
                return Within(tuple(Guard(self.ix(g.index), self.ix(g.size)) for g in guards))
            case Unary(fn=fn, x=x):
                return Unary(fn, self.expr(x))
            case Binary(fn=fn, x=x, y=y):
                return Binary(fn, self.expr(x), self.expr(y))
            case Select(pred=pred, then=then, other=other):
                return Select(self.expr(pred), self.expr(then), self.expr(other))
            case Cast(x=x, to=to, bits=bits):
                return Cast(self.expr(x), to, bits)
            case Reduce(fn=fn, axes=axes, init=init, dtype=dtype, body=body):
                return Reduce(fn, tuple(n.axes[a] for a in axes), init, dtype, self.expr(body))
            case Scan():
                return msgspec.structs.replace(e, axis=n.axes[e.axis], body=self.expr(e.body))
            case Random(key=key, counter=counter):
                return Random(self.expr(key), self.ix(counter))
            case BroadcastInDim(operand=operand, broadcast_dimensions=dims):
                if not isinstance(operand, Ref):
                    return self.expr(operand)
                axes = tuple(self.let_axes[d] for d in dims)
                return self.at(operand.let, axes)
            case Transpose(operand=operand, permutation=permutation):
                if not isinstance(operand, Ref):
                    return self.expr(operand)
                moved = list(self.let_axes)
                for j, p in enumerate(permutation):
                    moved[p] = self.let_axes[j]
                return self.at(operand.let, tuple(moved))
            case _:
                assert_never(e)

    def at(self, let: str, axes: tuple[str, ...]) -> At:
        """The let at these axes; an axis it has only once (size 1) at 0."""
        own = self.lets[let].axes
        entries = [
            ZERO if self.sizes[mine] == 1 and self.sizes[axis] != 1 else var(self.n.axes[axis])
            for mine, axis in zip(own, axes, strict=True)
        ]
        return At(self.n.lets[let], tuple(entries))
