"""Queries on a Region's expressions: operands, accesses, axes, dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, TypeAlias, assert_never, get_args

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import Expr, var
from tatami.core.ops import OPS, result_dtype
from tatami.indexbook.ir import Guard
from tatami.region import ir

LetUse: TypeAlias = ir.Ref | ir.At


def children(e: ir.RegionExpr) -> tuple[ir.RegionExpr, ...]:
    """The operands, in order of evaluation."""
    return _OPERANDS[type(e)](e)


def with_children(e: ir.RegionExpr, parts: tuple[ir.RegionExpr, ...]) -> ir.RegionExpr:
    """The same node with other operands."""
    names = _FIELDS[type(e)]
    if names == ("indices",):
        return msgspec.structs.replace(e, indices=parts)
    return msgspec.structs.replace(e, **dict(zip(names, parts, strict=True))) if names else e


_FIELDS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((ir.Read, ir.Ref, ir.At, ir.Const, ir.Index, ir.Within), ()),
    ir.ReadAt: ("indices",),
    ir.Unary: ("x",),
    ir.Cast: ("x",),
    ir.Binary: ("x", "y"),
    ir.Select: ("pred", "then", "other"),
    ir.Reduce: ("body",),
    ir.Scan: ("body",),
    ir.Random: ("key",),
    ir.BroadcastInDim: ("operand",),
    ir.Transpose: ("operand",),
}
"""The fields of each kind of node that are its operands, in order of evaluation; `indices` is a tuple of them."""
assert _FIELDS.keys() == set(get_args(ir.RegionExpr)), "a kind of node has no entry"


def _operands(names: tuple[str, ...]) -> Callable[[ir.RegionExpr], tuple[ir.RegionExpr, ...]]:
    """The operands in fields of these names; walks ask it of every node, so that a look into a table pays."""
    if not names:
        return lambda e: ()
    get: Callable[[ir.RegionExpr], Any] = attrgetter(*names)
    return get if names == ("indices",) or len(names) > 1 else lambda e: (get(e),)


_OPERANDS = {kind: _operands(names) for kind, names in _FIELDS.items()}


def rewrite(e: ir.RegionExpr, change: Callable[[ir.RegionExpr], ir.RegionExpr]) -> ir.RegionExpr:
    """`e` rebuilt bottom-up; `change` sees each node after its operands."""
    old = children(e)
    new = tuple(rewrite(c, change) for c in old)
    return change(e if all(a is b for a, b in zip(new, old, strict=True)) else with_children(e, new))


def nodes(e: ir.RegionExpr) -> Iterator[ir.RegionExpr]:
    """Every node, parents first."""
    stack = [e]
    while stack:
        node = stack.pop()
        yield node
        parts = _OPERANDS[type(node)](node)
        if parts:
            stack.extend(parts[::-1])


def reads(e: ir.RegionExpr) -> list[ir.Read | ir.ReadAt]:
    """Every read of an input tensor in `e`, in order."""
    return [n for n in nodes(e) if isinstance(n, ir.Read | ir.ReadAt)]


def let_uses(e: ir.RegionExpr) -> list[LetUse]:
    """Every reference to a let in `e`, in order."""
    return [n for n in nodes(e) if isinstance(n, ir.Ref | ir.At)]


def used_lets(e: ir.RegionExpr) -> tuple[str, ...]:
    """Names of the lets that `e` uses, each once, in order of use."""
    return tuple(dict.fromkeys(n.let for n in let_uses(e)))


def index_expressions(e: ir.RegionExpr) -> tuple[Expr, ...]:
    """The index expressions of this node itself, without those of its operands."""
    match e:
        case ir.Read(map=entries) | ir.At(map=entries):
            return entries
        case ir.ReadAt(map=maybe):
            return tuple(m for m in maybe if m is not None)
        case ir.Index(value=value) | ir.Random(counter=value):
            return (value,)
        case ir.Within(guards=guards):
            return tuple(x for g in guards for x in (g.index, g.size))
        case ir.BroadcastInDim(result_shape=shape):
            return shape
        case _:
            return ()


def free_axes(e: ir.RegionExpr, lets: Mapping[str, ir.Let], axes: frozenset[str]) -> frozenset[str]:
    """The axes (members of `axes`) on which the value of `e` depends, without those that its own reduces bind.

    A reference counts for all axes of its let.
    """
    out: set[str] = set()
    for x in index_expressions(e):
        out |= free_vars(x) & axes
    if isinstance(e, ir.Ref) and e.let in lets:
        out |= frozenset(lets[e.let].axes)
    for c in children(e):
        out |= free_axes(c, lets, axes)
    if isinstance(e, ir.Reduce):
        out -= set(e.axes)
    return frozenset(out)


def substitute_axes(e: ir.RegionExpr, values: Mapping[str, Expr], lets: Mapping[str, ir.Let]) -> ir.RegionExpr:
    """`e` at other coordinates. References become At where a coordinate of their let changes.

    The caller first renames reduce axes that `values` mentions.
    """

    def change(n: ir.RegionExpr) -> ir.RegionExpr:
        match n:
            case ir.Read(map=entries):
                return ir.Read(n.tensor, tuple(substitute(m, values) for m in entries))
            case ir.ReadAt(map=maybe):
                return msgspec.structs.replace(n, map=tuple(None if m is None else substitute(m, values) for m in maybe))
            case ir.At(map=entries):
                return ir.At(n.let, tuple(substitute(m, values) for m in entries))
            case ir.Ref(let=let) if any(a in values for a in lets[let].axes):
                return ir.At(let, tuple(values.get(a, _var(a)) for a in lets[let].axes))
            case ir.Index(value=value):
                return ir.Index(substitute(value, values), n.dtype)
            case ir.Random(counter=counter):
                return ir.Random(n.key, substitute(counter, values))
            case ir.Within(guards=guards):
                return ir.Within(tuple(Guard(substitute(g.index, values), g.size) for g in guards))
            case _:
                return n

    return rewrite(e, change)


def _var(name: str) -> Expr:
    from tatami.core.expr import var

    return var(name)


def all_axes(region: ir.Region) -> dict[str, Expr]:
    """Extent of every axis, by name."""
    return {i.name: i.size for i in (*region.iters, *region.reduce_axes)}


def routine_operands(region: ir.Region) -> tuple[str, ...]:
    """Names of the operands of an opaque Region's routine, in its order."""
    named = region.opaque.operands if region.opaque is not None else ()
    return named or tuple(p.name for p in region.inputs)


def routine_axis(region: ir.Region) -> int:
    """The axis of the first operand along which the routine of an opaque Region runs; 0 for a scalar operand."""
    assert region.opaque is not None
    rank = next(len(p.memref.shape) for p in region.inputs if p.name == routine_operands(region)[0])
    given = region.opaque.attrs.get("axis", -1)
    return int(given) % rank if rank and isinstance(given, int | float) else 0


def lets_by_name(region: ir.Region) -> dict[str, ir.Let]:
    """The lets of a Region by name."""
    return {let.name: let for let in region.lets}


def lines_of(e: ir.RegionExpr) -> tuple[str, ...]:
    """The axes along which a let's expression reduces or scans."""
    match e:
        case ir.Reduce(axes=axes):
            return axes
        case ir.Scan(axis=axis):
            return (axis,)
        case _:
            return ()


def let_shape(region: ir.Region, let: ir.Let) -> tuple[Expr, ...]:
    """Extents of the let's axes."""
    extents = all_axes(region)
    return tuple(extents[a] for a in let.axes)


def is_widening(fn: str, operand: DType, result: DType) -> bool:
    """True if a product of `operand`s may be computed exactly in the wider `result` (D2.21)."""
    if fn != "mul" or operand == result or DType.unknown in (operand, result):
        return False
    return result.itemsize >= operand.itemsize and (
        (operand.is_float and result.is_float and result not in (DType.fp16, DType.bf16)) or (operand.is_int and result.is_int)
    )


class Types:
    """Dtypes of the expressions of one Region, and of lets that are added to it."""

    def __init__(self, region: ir.Region) -> None:
        self.tensors = {p.name: p.memref.dtype for p in region.inputs}
        self.lets = {let.name: let.dtype for let in region.lets}

    def copy(self) -> Types:
        """The same, to which lets can be added apart."""
        other = copy(self)
        other.lets = dict(self.lets)
        return other

    def of(self, e: ir.RegionExpr, wanted: DType | None = None) -> DType | None:
        """The dtype of `e`, or None if an op's rule is broken or a name is unknown. `wanted`: the dtype of the accumulator or
        let to which a top-level product may widen (D2.21)."""
        match e:
            case ir.Read(tensor=tensor) | ir.ReadAt(tensor=tensor):
                return self.tensors.get(tensor)
            case ir.Ref(let=let) | ir.At(let=let):
                return self.lets.get(let)
            case ir.Const(dtype=dtype) | ir.Index(dtype=dtype) | ir.Reduce(dtype=dtype) | ir.Scan(dtype=dtype):
                argmax = isinstance(e, ir.Reduce) and e.fn in ("argmax", "argmin")
                return DType.i64 if argmax else dtype
            case ir.Within():
                return DType.bool
            case ir.Cast(to=to):
                return to
            case ir.Random():
                return DType.u32
            case ir.Unary(fn=fn, x=x):
                operand = self.of(x)
                return None if operand is None or fn not in OPS else result_dtype(OPS[fn], (operand,))
            case ir.Binary(fn=fn, x=x, y=y):
                a, b = self.of(x), self.of(y)
                if a is None or b is None or fn not in OPS:
                    return None
                if wanted is not None and a == b and is_widening(fn, a, wanted):
                    return wanted
                return result_dtype(OPS[fn], (a, b))
            case ir.Select(then=then, other=other):
                a, b = self.of(then, wanted), self.of(other, wanted)
                return a if a == b else None
            case ir.BroadcastInDim(operand=operand) | ir.Transpose(operand=operand):
                return self.of(operand, wanted)
            case _:
                assert_never(e)

    def dtype(self, e: ir.RegionExpr) -> DType:
        """The dtype of an expression of a verified Region; `unknown` if it has none."""
        return self.of(e) or DType.unknown


def widened(e: ir.RegionExpr, wanted: DType | None, types: Types) -> ir.RegionExpr:
    """`e` with the operands of its top product cast to the dtype of the let or accumulator that widens it (D2.21), under
    guards too; the same inside every reduce and scan."""

    def part(x: ir.RegionExpr, dtype: DType | None = None) -> ir.RegionExpr:
        return widened(x, dtype, types)

    match e:
        case ir.Binary(fn="mul", x=x, y=y) if wanted is not None and is_widening("mul", types.dtype(x), wanted):
            return ir.Binary("mul", ir.Cast(part(x), wanted), ir.Cast(part(y), wanted))
        case ir.Select(pred=pred, then=then, other=other):
            return ir.Select(part(pred), part(then, wanted), part(other, wanted))
        case ir.BroadcastInDim(operand=operand) | ir.Transpose(operand=operand):
            return msgspec.structs.replace(e, operand=part(operand, wanted))
        case ir.Reduce(fn="argmax" | "argmin", body=body):
            return msgspec.structs.replace(e, body=part(body))
        case ir.Reduce(body=body, dtype=dtype) | ir.Scan(body=body, dtype=dtype):
            return msgspec.structs.replace(e, body=part(body, dtype))
        case _:
            return with_children(e, tuple(map(part, children(e))))


def written_index(y: ir.Yield, axes: Sequence[str]) -> tuple[Expr, ...]:
    """The index at which a yield writes, over its let's `axes`; entries that its `indices` decide are left out."""
    return tuple(map(var, axes)) if y.map is None else tuple(e for e in y.map if e is not None)
