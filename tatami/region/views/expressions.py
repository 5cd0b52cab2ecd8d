"""Questions on the expressions of a Region: lets they refer to, axes, dtypes, names replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
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
from tatami.region.walk import nodes, used_lets


def refs_of(e: RegionExpr) -> set[str]:
    """Names of the lets that `e` uses."""
    return set(used_lets(e))


def axes_of(e: RegionExpr) -> set[str]:
    """Every name that index expressions in `e` use (size symbols among them)."""
    out: set[str] = set()
    for x in nodes(e):
        match x:
            case Read(map=m) | At(map=m):
                for i in m:
                    out |= free_vars(i)
            case ReadAt(map=m2):
                for j in m2:
                    out |= free_vars(j) if j is not None else set()
            case Index(value=v):
                out |= free_vars(v)
            case Within(guards=guards):
                for g in guards:
                    out |= free_vars(g.index)
            case _:
                pass
    return out


def dtype_of(e: RegionExpr, tensors: dict[str, DType], lets: dict[str, DType]) -> DType:
    """The dtype an expression yields."""
    match e:
        case Read(tensor=t) | ReadAt(tensor=t):
            return tensors[t]
        case Ref(let=name) | At(let=name):
            return lets[name]
        case Const(dtype=d) | Index(dtype=d) | Reduce(dtype=d) | Scan(dtype=d):
            return d
        case Within():
            return DType.bool
        case Unary(fn=fn, x=x):
            return DType.bool if fn in ("isnan", "isinf") else dtype_of(x, tensors, lets)
        case Binary(fn=fn, x=x):
            return DType.bool if fn in ("eq", "ne", "lt", "le", "gt", "ge") else dtype_of(x, tensors, lets)
        case Select(then=x):
            return dtype_of(x, tensors, lets)
        case Cast(to=to):
            return to
        case Random():
            return DType.u32
        case BroadcastInDim(operand=x) | Transpose(operand=x):
            return dtype_of(x, tensors, lets)
        case _:
            assert_never(e)


def rename(e: RegionExpr, tensor: Callable[[str], str], index: Callable[[Expr], Expr]) -> RegionExpr:
    """The expression with other tensor names and index expressions. Raises ValueError for nodes that are not elementwise."""
    match e:
        case Read(tensor=t, map=m):
            return Read(tensor(t), tuple(index(i) for i in m))
        case Ref() | Const():
            return e
        case Index(value=v, dtype=d):
            return Index(index(v), d)
        case Within(guards=guards):
            return Within(tuple(type(g)(index(g.index), index(g.size)) for g in guards))
        case Unary(fn=fn, x=x):
            return Unary(fn, rename(x, tensor, index))
        case Binary(fn=fn, x=x, y=y):
            return Binary(fn, rename(x, tensor, index), rename(y, tensor, index))
        case Select(pred=p, then=t2, other=o):
            return Select(rename(p, tensor, index), rename(t2, tensor, index), rename(o, tensor, index))
        case Cast(x=x, to=to, bits=bits):
            return Cast(rename(x, tensor, index), to, bits)
        case _:
            raise ValueError(f"{type(e).__name__} is not elementwise")
