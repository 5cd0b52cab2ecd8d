"""Checks of one let: names and axes in scope, dtypes, broadcasts, reduces, guarded reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tatami.core.algebra.assumed import NOTHING, Assumed
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr
from tatami.core.ops import OPS, REDUCE_OPS, SCAN_OPS
from tatami.indexbook.ir import Guard
from tatami.region.checks.guards import is_proved_inside
from tatami.region.checks.neutral import value_outside
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
    Region,
    RegionExpr,
    Scan,
    Select,
    Transpose,
    Unary,
    Within,
)
from tatami.region.walk import Types, all_axes, children, index_expressions, let_shape, lets_by_name, nodes


def check_let(region: Region, position: int, assumed: Assumed = NOTHING) -> list[Diagnostic]:
    """All faults of let number `position`, which may use the lets before it. Proofs of reads may use the equations of
    `assumed`."""
    let = region.lets[position]
    check = _LetCheck(region, let, frozenset(other.name for other in region.lets[:position]), assumed)
    return list(check.faults())


class _LetCheck:
    def __init__(self, region: Region, let: Let, earlier: frozenset[str], assumed: Assumed) -> None:
        self.region = region
        self.assumed = assumed
        self.let = let
        self.earlier = earlier
        self.lets = lets_by_name(region)
        self.extents = all_axes(region)
        self.inputs = {p.name: p.memref for p in region.inputs}
        self.types = Types(region)
        self.at = f"{region.name}: {let.name}"
        self.wanted: DType | None = let.dtype
        """The dtype to which the expression under check may widen: the let's, or None below a cast."""

    def fault(self, kind: str, why: str, suggestion: str) -> Diagnostic:
        return diagnostic(kind, self.at, why, suggestion)

    def faults(self) -> Iterator[Diagnostic]:
        unknown = [a for a in self.let.axes if a not in self.extents]
        if unknown or len(set(self.let.axes)) != len(self.let.axes):
            yield self.fault(
                "AxisOutOfRange", f"axes {', '.join(self.let.axes)}: unknown or repeated", "use declared axes, each once"
            )
            return
        before = True
        for d in self.walk(self.let.expr, frozenset(self.let.axes), (), False):
            before = before and d.is_warning
            yield d
        if before:
            yield from self.result()

    def result(self) -> Iterator[Diagnostic]:
        dtype = self.types.of(self.let.expr, self.let.dtype)
        if dtype is not None and dtype != self.let.dtype and DType.unknown not in (dtype, self.let.dtype):
            yield self.fault(
                "DTypeMismatch", f"the expression is {dtype}, the let {self.let.dtype}", f"insert a cast to {self.let.dtype}"
            )

    # -- one expression ------------------------------------------------------------------------

    def walk(self, e: RegionExpr, scope: frozenset[str], guards: tuple[Guard, ...], inner: bool) -> Iterator[Diagnostic]:
        """Faults in `e` and below. `scope`: axes that may be named; `guards`: facts of enclosing Selects; `inner`: True below
        the let's root."""
        yield from self.axes_in_scope(e, scope)
        match e:
            case Read(tensor=tensor, map=entries):
                yield from self.access(tensor, entries, scope, guards)
            case ReadAt():
                yield from self.access(e.tensor, e.map, scope, guards)
                if len(e.indices) != sum(m is None for m in e.map):
                    yield self.fault(
                        "InvalidRegion",
                        f"{len(e.indices)} indices for the open entries of {e.tensor}",
                        "give one index per None",
                    )
                for i in e.indices:
                    dtype = self.types.of(i)
                    if dtype is not None and not dtype.is_int:
                        yield self.fault("DTypeMismatch", f"an index of {e.tensor} is {dtype}", "cast the index to an integer")
            case Ref(let=let):
                yield from self.reference(let)
                missing = [a for a in self.lets[let].axes if a not in scope] if let in self.lets else []
                if missing:
                    yield self.fault(
                        "AxisOutOfRange", f"{let} runs over {', '.join(missing)}, not in scope here", "read it by At with a map"
                    )
            case At(let=let, map=entries):
                yield from self.reference(let)
                if let in self.earlier:
                    yield from self.inside(let, let_shape(self.region, self.lets[let]), entries, scope, guards)
            case Unary(fn=fn) | Binary(fn=fn):
                yield from self.operator(e, fn)
            case Select(pred=pred, then=then, other=other):
                yield from self.select(e, inner)
                facts = guards + pred.guards if isinstance(pred, Within) else guards
                yield from self.walk(pred, scope, guards, True)
                yield from self.walk(then, scope, facts, True)
                yield from self.walk(other, scope, guards, True)
                return
            case Reduce():
                yield from self.reduce(e, scope, inner)
                scope = scope | frozenset(e.axes)
            case Scan(fn=fn, axis=axis):
                if fn not in SCAN_OPS:
                    yield self.fault("UnknownOp", f"there is no scan {fn!r}", f"the scans are {', '.join(SCAN_OPS)}")
                if axis not in self.let.axes:
                    yield self.fault(
                        "AxisOutOfRange", f"the scan runs along {axis}, no axis of the let", "scan along an axis of the let"
                    )
                if inner:
                    yield self.fault("InvalidRegion", "a scan stands inside another expression", "give the scan its own let")
            case BroadcastInDim() | Transpose():
                yield from self.movement(e)
                if isinstance(e.operand, Ref):
                    yield from self.reference(e.operand.let)
                    return
            case Cast(x=x):
                around, self.wanted = self.wanted, None
                yield from self.walk(x, scope, guards, True)
                self.wanted = around
                return
            case Const() | Index() | Random() | Within():
                pass
            case _:
                assert_never(e)
        for c in children(e):
            yield from self.walk(c, scope, guards, True)

    def axes_in_scope(self, e: RegionExpr, scope: frozenset[str]) -> Iterator[Diagnostic]:
        for x in index_expressions(e):
            wrong = sorted((free_vars(x) & self.extents.keys()) - scope)
            if wrong:
                yield self.fault(
                    "AxisOutOfRange", f"{x} names {', '.join(wrong)}, not in scope here", "use axes of the let or of the reduce"
                )

    def reference(self, let: str) -> Iterator[Diagnostic]:
        if let not in self.earlier:
            yield self.fault("UnknownValue", f"let {let} is not defined before this one", "define it first")

    # -- accesses ------------------------------------------------------------------------------

    def access(
        self, tensor: str, entries: tuple[Expr | None, ...], scope: frozenset[str], guards: tuple[Guard, ...]
    ) -> Iterator[Diagnostic]:
        if tensor not in self.inputs:
            yield self.fault("UnknownValue", f"tensor {tensor} is not an input of the Region", "declare it in inputs")
            return
        yield from self.inside(tensor, self.inputs[tensor].shape, entries, scope, guards)

    def inside(
        self,
        name: str,
        shape: tuple[Expr, ...],
        entries: tuple[Expr | None, ...],
        scope: frozenset[str],
        guards: tuple[Guard, ...],
    ) -> Iterator[Diagnostic]:
        if len(shape) != len(entries):
            yield self.fault(
                "InvalidRegion", f"a map of {len(entries)} entries reads {name} of rank {len(shape)}", "give one entry per axis"
            )
            return
        extents = {a: n for a, n in self.extents.items() if a in scope}
        for index, size in zip(entries, shape):
            if (
                index is None
                or (free_vars(index) & self.extents.keys()) - scope
                or is_proved_inside(index, size, extents, guards, self.assumed)
            ):
                continue
            yield self.fault(
                "UnguardedAccess",
                f"{name} is read at {index}, which is not proved to be inside 0 … {size} - 1",
                f"read it under Select(Within(0 <= {index} < {size}), …) with the neutral element outside",
            )

    # -- operators -----------------------------------------------------------------------------

    def operator(self, e: Unary | Binary, fn: str) -> Iterator[Diagnostic]:
        if fn not in OPS:
            yield self.fault("UnknownOp", f"there is no scalar op {fn!r}", "use an op of core/ops.py")
            return
        operands = (e.x,) if isinstance(e, Unary) else (e.x, e.y)
        if OPS[fn].arity != len(operands):
            yield self.fault(
                "InvalidRegion", f"{fn} takes {OPS[fn].arity} operands, not {len(operands)}", "give it its operands"
            )
            return
        types = [self.types.of(x) for x in operands]
        if None in types or DType.unknown in types:
            return
        if len(set(types)) > 1:
            a, b = types
            yield self.fault("DTypeMismatch", f"{fn} of {a} and {b}", f"insert a cast of one operand to {_wider(a, b)}")
        elif self.types.of(e) is None:
            yield self.fault("UnsupportedDType", f"{fn} is not defined for {types[0]}", "cast the operand first")

    def select(self, e: Select, inner: bool) -> Iterator[Diagnostic]:
        pred, then, other = self.types.of(e.pred), self.types.of(e.then, self.wanted), self.types.of(e.other, self.wanted)
        if pred is not None and pred != DType.bool:
            yield self.fault("DTypeMismatch", f"the predicate of a select is {pred}", "compare first: a predicate is bool")
        if then is not None and other is not None and then != other and DType.unknown not in (then, other):
            yield self.fault("DTypeMismatch", f"a select of {then} and {other}", f"insert a cast to {_wider(then, other)}")

    def reduce(self, e: Reduce, scope: frozenset[str], inner: bool) -> Iterator[Diagnostic]:
        if e.fn not in REDUCE_OPS:
            yield self.fault("UnknownOp", f"there is no reduce {e.fn!r}", f"the reduces are {', '.join(REDUCE_OPS)}")
            return
        if e.dtype == DType.unknown:
            yield self.fault("AccDtypeMissing", f"{e.fn} has no accumulation dtype", "give the reduce a dtype, such as fp32")
        if inner:
            yield self.fault("InvalidRegion", "a reduce stands inside another expression", "give the reduce its own let (SRNF)")
        declared = [i.name for i in (*self.region.iters, *self.region.reduce_axes)]
        if not e.axes or len(set(e.axes)) != len(e.axes) or any(a not in declared for a in e.axes):
            yield self.fault(
                "AxisOutOfRange",
                f"reduce axes {list(e.axes)} are not declared once each",
                "name axes of reduce_axes (or iters), each once",
            )
            return
        if shadowed := sorted(set(e.axes) & scope):
            yield self.fault(
                "AxisOutOfRange",
                f"the let runs over {', '.join(shadowed)}, which it also reduces",
                "leave reduce_axes out of the let's axes",
            )
        if e.fn in ("argmax", "argmin") and len(e.axes) != 1:
            yield self.fault("AxisOutOfRange", f"{e.fn} over {len(e.axes)} axes", "reduce exactly one axis")
        yield from self.neutral(e)

    def neutral(self, e: Reduce) -> Iterator[Diagnostic]:
        """A warning if the body is not the neutral element where a guard does not hold (spec 3 §6.7(5)). A pad with another
        value is legal; the loader of hand-written documents makes it an error."""
        wrong = value_outside(e)
        if wrong is not None:
            yield self.fault(
                "GuardNotNeutral",
                f"outside its guard the body of {e.fn} is {wrong}, not the neutral element",
                f"write the neutral element of {e.fn} as the else of the guard, unless the pad value is meant",
            )

    # -- explicit movement ---------------------------------------------------------------------

    def movement(self, e: BroadcastInDim | Transpose) -> Iterator[Diagnostic]:
        operand = self.lets.get(e.operand.let) if isinstance(e.operand, Ref) else None
        rank = len(self.let.axes)
        if isinstance(e, Transpose):
            if sorted(e.permutation) != list(range(rank)):
                yield self.fault(
                    "InvalidPermutation", f"permutation {list(e.permutation)} at rank {rank}", "name each axis once"
                )
            elif operand is not None and len(operand.axes) == rank:
                mine, its = let_shape(self.region, self.let), let_shape(self.region, operand)
                if any(mine[j] != its[p] for j, p in enumerate(e.permutation)):
                    yield self.fault(
                        "BroadcastMismatch", f"transposing {operand.name} gives another shape", "permute the let's axes as well"
                    )
            elif operand is not None:
                yield self.fault(
                    "BroadcastMismatch", f"{operand.name} has rank {len(operand.axes)}, the let {rank}", "transpose equal ranks"
                )
            return
        shape = let_shape(self.region, self.let)
        dims = e.broadcast_dimensions
        inner = self.let.expr.axes if isinstance(self.let.expr, Reduce) else ()
        if e.result_shape not in (shape, (*shape, *(self.extents[a] for a in inner if a in self.extents))):
            yield self.fault(
                "BroadcastMismatch",
                f"result_shape [{', '.join(map(str, e.result_shape))}] where the let has [{', '.join(map(str, shape))}]",
                "give result_shape the extents of the let's axes",
            )
        if len(set(dims)) != len(dims) or any(not 0 <= d < len(e.result_shape) for d in dims):
            yield self.fault("AxisOutOfRange", f"broadcast_dimensions {list(dims)}", "name each result axis at most once")
        elif operand is not None:
            its = let_shape(self.region, operand)
            if len(its) != len(dims):
                yield self.fault(
                    "BroadcastMismatch", f"{len(dims)} broadcast_dimensions for rank {len(its)}", "give one per operand axis"
                )
            elif bad := [d for n, d in zip(its, dims) if n not in (ONE, e.result_shape[d])]:
                yield self.fault(
                    "BroadcastMismatch", f"operand and result differ on axis {bad[0]}", "broadcast only axes of extent 1"
                )
        elif why := self._inline_dimensions(e, (*self.let.axes, *inner)):
            yield self.fault("BroadcastMismatch", f"broadcast_dimensions {list(dims)}: {why}", "name the axes of the operand")

    def _inline_dimensions(self, e: BroadcastInDim, axes: tuple[str, ...]) -> str:
        """The reason why the dimensions of an operand in index form are not those of its axes, or ""."""
        place = {a: d for d, a in enumerate(axes)}
        used = {a for x in nodes(e.operand) for i in index_expressions(x) for a in free_vars(i)}
        used |= {a for x in nodes(e.operand) if isinstance(x, Ref) and x.let in self.lets for a in self.lets[x.let].axes}
        own = used & place.keys()
        dims = e.broadcast_dimensions
        if lacking := sorted(a for a in own if place[a] not in dims):
            return f"the operand has axis {lacking[0]}, which is axis {place[lacking[0]]} of the result"
        found = [x for x in nodes(e.operand) if isinstance(x, Read)]
        for read in found:
            names = [i.as_name() for i in read.map]
            if len(names) == len(dims) and any(n in place and place[n] != d for n, d in zip(names, dims)):
                return f"the axes of {read.tensor} are {', '.join(map(str, read.map))}"
        extra = sorted(set(dims) - {place[a] for a in own})
        if extra and len(dims) not in {len(read.map) for read in found}:
            return f"the operand has no axis {extra[0]} of the result"
        return ""


def _wider(a: DType | None, b: DType | None) -> DType:
    known = [d for d in (a, b) if d is not None]
    return max(known, key=lambda d: (d.is_float, d.itemsize))
