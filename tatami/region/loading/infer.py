"""Parts that a Region document may leave out: axes of lets, sizes of axes, dtypes of constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape
from tatami.region.ir import Binary, BroadcastInDim, Cast, Const, Read, ReadAt, Reduce, Ref, RegionExpr, Select, Unary
from tatami.region.walk import Types, children, index_expressions, nodes, with_children


def reduce_names(value: Any) -> list[str]:
    """Axes bound by the reduces anywhere inside a JSON value."""
    out: list[str] = []
    stack = [value]
    while stack:
        v = stack.pop()
        if isinstance(v, dict):
            inner = v.get("reduce")
            if isinstance(inner, dict) and isinstance(inner.get("axes"), list):
                out += [a for a in inner["axes"] if isinstance(a, str)]
            stack += list(v.values())
        elif isinstance(v, list):
            stack += v
    return out


def let_axes(e: RegionExpr, axes: Mapping[str, tuple[str, ...]], known: list[str]) -> tuple[str, ...]:
    """The axes that a let depends on, in the order of `known`."""
    used = _used(e, axes, frozenset(known))
    return tuple(a for a in known if a in used)


def with_broadcast(
    e: RegionExpr, own: tuple[str, ...], sizes: Mapping[str, Expr], axes: Mapping[str, tuple[str, ...]]
) -> RegionExpr:
    """A binary operation with the BroadcastInDim that a document leaves out: of an operand that has some of the let's axes
    `own`, outside reduces, whose bodies read operands directly.

        acc[m, n] + bias[n]   ->   acc + BroadcastInDim(bias[n], [M, N], [1])
    """
    if not isinstance(e, Unary | Binary | Cast):
        return e
    parts = [with_broadcast(c, own, sizes, axes) for c in children(e)]
    if isinstance(e, Binary):
        for k, c in enumerate(parts):
            has = let_axes(c, axes, list(own))
            if has and has != own and not isinstance(c, BroadcastInDim) and let_axes(e, axes, list(own)) == own:
                parts[k] = BroadcastInDim(c, tuple(sizes[a] for a in own), tuple(own.index(a) for a in has))
    return with_children(e, tuple(parts))


def _used(e: RegionExpr, axes: Mapping[str, tuple[str, ...]], known: frozenset[str]) -> set[str]:
    out: set[str] = set()
    for x in index_expressions(e):
        out |= free_vars(x) & known
    if isinstance(e, Ref):
        out |= set(axes.get(e.let, ()))
    for c in children(e):
        out |= _used(c, axes, known)
    if isinstance(e, Reduce):
        out -= set(e.axes)
    return out


def read_sizes(lets: Iterable[RegionExpr], shapes: Mapping[str, Shape], known: list[str]) -> dict[str, Expr]:
    """The size of each axis that is a whole entry of a read's map: that of the tensor's dimension. The first read decides."""
    out: dict[str, Expr] = {}
    for e in lets:
        for n in nodes(e):
            if isinstance(n, Read | ReadAt) and n.tensor in shapes:
                for entry, size in zip(n.map, shapes[n.tensor]):
                    name = entry.as_name() if entry is not None else None
                    if name in known:
                        out.setdefault(str(name), size)
    return out


def infer_constants(e: RegionExpr, types: Types) -> RegionExpr:
    """`e` with a dtype for every constant that has none: that of a neighbouring operand, else of the enclosing accumulator,
    else fp32."""
    return _typed(e, types, None)


def _typed(e: RegionExpr, types: Types, wanted: DType | None) -> RegionExpr:
    if isinstance(e, Const):
        return Const(e.value, wanted or DType.fp32) if e.dtype == DType.unknown else e
    if isinstance(e, Reduce):
        return msgspec.structs.replace(e, body=_typed(e.body, types, None if e.dtype == DType.unknown else e.dtype))
    parts = children(e)
    if not parts:
        return e
    if isinstance(e, Select):
        inner = _neighbour((e.then, e.other), types) or wanted
        return Select(_typed(e.pred, types, None), _typed(e.then, types, inner), _typed(e.other, types, inner))
    inner = _neighbour(parts, types) if isinstance(e, Binary) else wanted
    return with_children(e, tuple(_typed(c, types, inner or wanted) for c in parts))


def _neighbour(parts: tuple[RegionExpr, ...], types: Types) -> DType | None:
    """The dtype of the first operand that has one; None if none has."""
    for p in parts:
        found = _dtype_of(p, types)
        if found is not None:
            return found
    return None


def _dtype_of(e: RegionExpr, types: Types) -> DType | None:
    if isinstance(e, Const):
        return None if e.dtype == DType.unknown else e.dtype
    if isinstance(e, Select):
        return _dtype_of(e.then, types) or _dtype_of(e.other, types)
    found = types.of(e)
    if found is not None and found != DType.unknown:
        return found
    return _neighbour(children(e), types)
