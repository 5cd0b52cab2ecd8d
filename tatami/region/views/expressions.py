"""Questions on the expressions of a Region: lets they refer to, axes, dtypes, names replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.region import ir
from tatami.region.walk import nodes, used_lets


def refs_of(e: ir.RegionExpr) -> set[str]:
    """Names of the lets that `e` uses."""
    return set(used_lets(e))


def axes_of(e: ir.RegionExpr) -> set[str]:
    """Every name that index expressions in `e` use (size symbols among them)."""
    out: set[str] = set()
    for x in nodes(e):
        match x:
            case ir.Read(map=m) | ir.At(map=m):
                for i in m:
                    out |= free_vars(i)
            case ir.ReadAt(map=m2):
                for j in m2:
                    out |= free_vars(j) if j is not None else set()
            case ir.Index(value=v):
                out |= free_vars(v)
            case ir.Within(guards=guards):
                for g in guards:
                    out |= free_vars(g.index)
            case _:
                pass
    return out


def dtype_of(e: ir.RegionExpr, tensors: dict[str, DType], lets: dict[str, DType]) -> DType:
    """The dtype an expression yields."""
    match e:
        case ir.Read(tensor=t) | ir.ReadAt(tensor=t):
            return tensors[t]
        case ir.Ref(let=name) | ir.At(let=name):
            return lets[name]
        case ir.Const(dtype=d) | ir.Index(dtype=d) | ir.Reduce(dtype=d) | ir.Scan(dtype=d):
            return d
        case ir.Within():
            return DType.bool
        case ir.Unary(fn=fn, x=x):
            return DType.bool if fn in ("isnan", "isinf") else dtype_of(x, tensors, lets)
        case ir.Binary(fn=fn, x=x):
            return DType.bool if fn in ("eq", "ne", "lt", "le", "gt", "ge") else dtype_of(x, tensors, lets)
        case ir.Select(then=x):
            return dtype_of(x, tensors, lets)
        case ir.Cast(to=to):
            return to
        case ir.Random():
            return DType.u32
        case ir.BroadcastInDim(operand=x) | ir.Transpose(operand=x):
            return dtype_of(x, tensors, lets)
        case _:
            assert_never(e)


def rename(e: ir.RegionExpr, tensor: Callable[[str], str], index: Callable[[Expr], Expr]) -> ir.RegionExpr:
    """The expression with other tensor names and index expressions. Raises ValueError for nodes that are not elementwise."""
    match e:
        case ir.Read(tensor=t, map=m):
            return ir.Read(tensor(t), tuple(index(i) for i in m))
        case ir.Ref() | ir.Const():
            return e
        case ir.Index(value=v, dtype=d):
            return ir.Index(index(v), d)
        case ir.Within(guards=guards):
            return ir.Within(tuple(type(g)(index(g.index), index(g.size)) for g in guards))
        case ir.Unary(fn=fn, x=x):
            return ir.Unary(fn, rename(x, tensor, index))
        case ir.Binary(fn=fn, x=x, y=y):
            return ir.Binary(fn, rename(x, tensor, index), rename(y, tensor, index))
        case ir.Select(pred=p, then=t2, other=o):
            return ir.Select(rename(p, tensor, index), rename(t2, tensor, index), rename(o, tensor, index))
        case ir.Cast(x=x, to=to, bits=bits):
            return ir.Cast(rename(x, tensor, index), to, bits)
        case _:
            raise ValueError(f"{type(e).__name__} is not elementwise")
