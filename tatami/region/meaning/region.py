"""Meaning of a Region in numpy: every let as an array over its axes.

Inside an expression each axis in scope is one array dimension; a value that does not depend on an axis has extent 1 there, so
named-axis broadcasting is numpy's own. Reads under a guard clamp their index: their values outside are never used. A sum of a
product of two operands that share only part of the scope is a matrix product; any other large expression is computed in
slices. A large pointwise let with one use is not stored: its use computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, var
from tatami.core.numbers import numerics
from tatami.core.numbers.numerics import Mode, cast, combine, constant, storage_dtype
from tatami.core.ops import OPS
from tatami.core.tensor import numpy_dtype
from tatami.region import ir
from tatami.region.meaning.access import Scope, apply_policy
from tatami.region.meaning.contraction import contract
from tatami.region.meaning.inlined_lets import InlinedLets, clamped_shape
from tatami.region.walk import Types, all_axes, is_widening, routine_operands
from tatami.tiny.run import ROUTINES  # type: ignore[attr-defined]

Array: TypeAlias = np.ndarray
Observe: TypeAlias = Callable[[str, str, Array], None]

MAX_ELEMENTS = 1 << 25
"""Maximum elements of one intermediate; a larger expression is computed in slices."""


def run_region(
    region: ir.Region,
    tensors: Mapping[str, Array],
    sizes: Mapping[str, int],
    mode: Mode = "declared",
    observe: Observe | None = None,
    program: str = "main",
) -> dict[str, Array]:
    """The outputs of one Region by name. `tensors`: arrays of its inputs."""
    return _RegionRun(region, tensors, sizes, mode, observe, program).outputs()


def run_routine(at: str, name: str, src: Sequence[Array], attrs: Mapping[str, object]) -> list[Array]:
    """Results of routine `name` on the arrays `src`. Raises UnknownOp if there is no routine of that name."""
    if name not in ROUTINES:
        raise fail("UnknownOp", at, f"no routine {name!r}", f"the routines are {', '.join(sorted(ROUTINES))}")
    return list(ROUTINES[name](src, attrs))


class _RegionRun:
    """Run of one Region on concrete arrays."""

    def __init__(
        self,
        region: ir.Region,
        tensors: Mapping[str, Array],
        sizes: Mapping[str, int],
        mode: Mode,
        observe: Observe | None,
        program: str,
    ) -> None:
        self.region = region
        self.tensors = tensors
        self.sizes = sizes
        self.mode = mode
        self.observe = observe
        self.program = program
        self.extents = all_axes(region)
        self.types = Types(region)
        self.lets = {let.name: let for let in region.lets}
        self.values: dict[str, Array] = {}
        self.inlined = InlinedLets(region, sizes)

    def outputs(self) -> dict[str, Array]:
        if self.region.opaque is not None:
            src = [self.tensors[name] for name in routine_operands(self.region)]
            results = run_routine(self.region.name, self.region.opaque.routine, src, self.region.opaque.attrs)
            return {t.name: cast(np.asarray(r), t.memref.dtype, self.mode) for t, r in zip(self.region.outputs, results)}
        for let in self.region.lets:
            if let.name in self.inlined.names:
                continue
            self.values[let.name] = self.let(let)
            if self.observe is not None:
                self.observe(self.program, f"{self.region.name}.{let.name}", self.values[let.name])
        out: dict[str, Array] = {}
        for target in self.region.outputs:
            dtype = storage_dtype(target.memref.dtype, self.mode)
            if target.updates:
                out[target.name] = np.array(self.tensors[target.updates], dtype)
            else:
                out[target.name] = np.zeros(clamped_shape(target.memref.shape, self.sizes), dtype)
        dtypes = {t.name: t.memref.dtype for t in self.region.outputs}
        for y in self.region.yields:
            self.write(y, out[y.to], dtypes[y.to])
        return out

    # -- lets ----------------------------------------------------------------------------------

    def let(self, let: ir.Let) -> Array:
        shape = clamped_shape(tuple(self.extents[a] for a in let.axes), self.sizes)
        out = np.empty(shape, storage_dtype(let.dtype, self.mode))
        self._fill(let, out, {a: (0, n) for a, n in zip(let.axes, shape)})
        return out

    def _fill(self, let: ir.Let, out: Array, ranges: dict[str, tuple[int, int]]) -> None:
        """Compute the part of `let` in `ranges`, in slices when it is large."""
        work = [ranges]
        while work:
            part = work.pop()
            extent = {a: hi - lo for a, (lo, hi) in part.items()}
            if 0 in extent.values():
                continue
            widest = max((a for a in let.axes if not _is_scanned(let, a)), key=lambda a: extent[a], default=None)
            if widest is not None and extent[widest] > 1 and self.inlined.elements(let.expr, extent) > MAX_ELEMENTS:
                lo, hi = part[widest]
                middle = (lo + hi) // 2
                work += [{**part, widest: (middle, hi)}, {**part, widest: (lo, middle)}]
                continue
            scope = Scope(let.axes, part, self.sizes)
            value = self.evaluate(let.expr, scope, let.dtype)
            out[tuple(slice(*part[a]) for a in let.axes)] = cast(value, let.dtype, self.mode)

    # -- expressions ---------------------------------------------------------------------------

    def evaluate(self, e: ir.RegionExpr, scope: Scope, wanted: DType | None = None, guarded: bool = False) -> Array:
        """The value over `scope`: rank of the scope, extent 1 where it does not depend on an axis."""
        match e:
            case ir.Read(tensor=tensor, map=entries):
                return self.gather(self.tensors[tensor], [scope.index(m) for m in entries], scope, guarded, e.tensor)
            case ir.ReadAt():
                return self.read_at(e, scope, guarded)
            case ir.Ref(let=let):
                return self.positional(let, self.lets[let].axes, scope)
            case ir.At(let=let, map=entries):
                return self.gather(self.values[let], [scope.index(m) for m in entries], scope, guarded, let)
            case ir.Const(value=value, dtype=dtype):
                return constant(value, dtype, self.mode).reshape((1,) * len(scope.axes))
            case ir.Index(value=value, dtype=dtype):
                return cast(scope.index(value), dtype, self.mode)
            case ir.Within(guards=guards):
                out = np.ones((1,) * len(scope.axes), np.bool_)
                for g in guards:
                    index = scope.index(g.index)
                    out = out & (index >= 0) & (index < scope.index(g.size))
                return out
            case ir.Unary(fn=fn, x=x):
                return self.apply(e, fn, [self.evaluate(x, scope, None, guarded)], self.types.of(e))
            case ir.Binary(fn=fn, x=x, y=y):
                a, b = self.evaluate(x, scope, None, guarded), self.evaluate(y, scope, None, guarded)
                result = self.types.of(e, wanted)
                if (
                    wanted is not None
                    and result == wanted
                    and (operand := self.types.of(x))
                    and is_widening(fn, operand, wanted)
                ):
                    a, b = cast(a, wanted, self.mode), cast(b, wanted, self.mode)
                return self.apply(e, fn, [a, b], result)
            case ir.Select(pred=pred, then=then, other=other):
                p = self.evaluate(pred, scope, None, guarded)
                a = self.evaluate(then, scope, wanted, guarded or isinstance(pred, ir.Within))
                return np.where(p, a, self.evaluate(other, scope, wanted, guarded))
            case ir.Cast(x=x, to=to, bits=bits):
                made = self.evaluate(x, scope, None, guarded)
                return self.bitcast(made, self.types.of(x), to) if bits else cast(made, to, self.mode)
            case ir.Reduce():
                return self.reduce(e, scope, guarded)
            case ir.Scan(fn=fn, axis=axis, dtype=dtype, body=body, exclusive=exclusive, reverse=reverse):
                made = self.evaluate(body, scope, dtype, guarded)
                at = scope.axes.index(axis)
                full = [scope.shape[i] if i == at else n for i, n in enumerate(made.shape)]
                return numerics.scan(fn, np.broadcast_to(made, full), at, dtype, exclusive, reverse, self.mode)
            case ir.Random(key=key, counter=counter):
                k = self.evaluate(key, scope, None, guarded)
                if k.size != 1:
                    raise fail(
                        "InvalidRegion",
                        self.region.name,
                        "a random key varies over the let",
                        "read the key at a constant index",
                    )
                words = numerics.philox(int(k.reshape(())), (index := scope.index(counter)) // 4)
                return np.take_along_axis(words, (index % 4)[..., None], axis=-1)[..., 0]
            case ir.BroadcastInDim(operand=operand, broadcast_dimensions=dims):
                if isinstance(operand, ir.Ref):
                    return self.positional(operand.let, tuple(scope.axes[d] for d in dims), scope)
                return self.evaluate(operand, scope, wanted, guarded)
            case ir.Transpose(operand=operand, permutation=permutation):
                if isinstance(operand, ir.Ref):
                    axes = [""] * len(permutation)
                    for j, place in enumerate(permutation):
                        axes[place] = scope.axes[j]
                    return self.positional(operand.let, tuple(axes), scope)
                return self.evaluate(operand, scope, wanted, guarded)
            case _:
                assert_never(e)

    def apply(self, e: ir.RegionExpr, fn: str, args: list[Array], dtype: DType | None) -> Array:
        if dtype is None:
            why = f"{fn} is not defined for its operands" if fn in OPS else f"there is no op {fn!r}"
            kind = "DTypeMismatch" if fn in OPS else "UnknownOp"
            raise fail(kind, self.region.name, why, "add the cast, or use an op of the table")
        return np.asarray(numerics.apply(fn, args, dtype, self.mode))

    def positional(self, let: str, axes: tuple[str, ...], scope: Scope) -> Array:
        """Let `let`, whose dimension j is scope axis ``axes[j]``, over the scope. Dimensions of extent 1 repeat."""
        own = self.lets[let].axes
        if let in self.inlined.names:
            ones = {a for a in own if int(evaluate(self.extents[a], self.sizes)) == 1}
            ranges = {a: (0, 1) if a in ones else scope.ranges[b] for a, b in zip(own, axes)}
            array = cast(
                self.evaluate(self.lets[let].expr, Scope(own, ranges, self.sizes), self.lets[let].dtype),
                self.lets[let].dtype,
                self.mode,
            )
        else:
            array = self.values[let]
            array = array[tuple(slice(None) if n == 1 else slice(*scope.ranges[a]) for n, a in zip(array.shape, axes))]
        order = sorted(range(len(axes)), key=lambda j: scope.axes.index(axes[j]))
        shape = [1] * len(scope.axes)
        for j, a in enumerate(axes):
            shape[scope.axes.index(a)] = array.shape[j]
        return np.transpose(array, order).reshape(shape)

    def gather(self, array: Array, index: list[Array], scope: Scope, guarded: bool, at: str) -> Array:
        if array.ndim != len(index):
            raise fail("InvalidRegion", at, f"a map of {len(index)} entries reads rank {array.ndim}", "give one entry per axis")
        if not index:
            return array.reshape((1,) * len(scope.axes))
        shape = np.broadcast_shapes(*(i.shape for i in index))
        guarded = guarded or any(low >= high for low, high in scope.ranges.values())  # an empty domain reads nothing
        if 0 in array.shape or 0 in shape:
            if 0 not in shape and not guarded:
                raise fail("IndexOutOfRange", at, "an element of an empty tensor is read", "guard the read")
            return np.zeros(shape, array.dtype)
        safe: list[Array] = []
        for axis, (i, n) in enumerate(zip(index, array.shape)):
            low, high = int(i.min()), int(i.max())
            if (low < 0 or high >= n) and not guarded:
                raise fail(
                    "IndexOutOfRange",
                    f"{self.region.name}: {at}",
                    f"axis {axis} is read at {low} … {high} where its size is {n}",
                    "guard the read with a Within predicate",
                )
            safe.append(np.clip(i, 0, n - 1) if low < 0 or high >= n else i)
        return np.asarray(array[tuple(safe)])

    def read_at(self, e: ir.ReadAt, scope: Scope, guarded: bool) -> Array:
        array = self.tensors[e.tensor]
        operands = [self.evaluate(i, scope, None, guarded) for i in e.indices]
        index: list[Array] = []
        inside: Array | None = None
        taken = iter(operands)
        for entry, size in zip(e.map, array.shape):
            if entry is not None:
                index.append(scope.index(entry))
                continue
            i, ok = apply_policy(next(taken).astype(np.int64), size, e.bounds, guarded, f"{self.region.name}: {e.tensor}")
            inside = ok if inside is None else inside if ok is None else inside & ok
            index.append(i)
        value = self.gather(array, index, scope, guarded or e.bounds == "zero", e.tensor)
        return value if inside is None else np.where(inside, value, value.dtype.type(0)).astype(value.dtype)

    def bitcast(self, x: Array, source: DType | None, to: DType) -> Array:
        if self.mode == "float64" and source is not None and source.is_float:
            if to.is_float:
                return x
            x = cast(x, source, "declared")
        out = np.ascontiguousarray(x).view(numpy_dtype(to)).reshape(x.shape)
        return out.astype(storage_dtype(to, self.mode))

    # -- reduces -------------------------------------------------------------------------------

    def reduce(self, e: ir.Reduce, scope: Scope, guarded: bool) -> Array:
        inner = scope.inner(e.axes, self.sizes, self.extents)
        rank = len(scope.axes)
        if (factors := self.inlined.product(e)) is not None and e.dtype != DType.bool:
            x, y = (cast(self.evaluate(f, inner, None, guarded), e.dtype, self.mode) for f in factors)
            if e.dtype.is_narrow_float and self.mode == "declared":
                x, y = x.astype(np.float32), y.astype(np.float32)
            out = contract(x, y, inner.shape, rank)
            start = constant(0 if e.init is None else e.init, e.dtype, self.mode).astype(out.dtype)
            return cast(out + start, e.dtype, self.mode)
        value = self.evaluate(e.body, inner, e.dtype, guarded)
        full = (*value.shape[:rank], *inner.shape[rank:])
        value = np.broadcast_to(value, full)
        if e.fn in ("argmax", "argmin") and len(e.axes) != 1:
            raise fail("InvalidRegion", self.region.name, f"{e.fn} over {len(e.axes)} axes", "reduce exactly one axis")
        return numerics.reduce(e.fn, value, tuple(range(rank, rank + len(e.axes))), e.dtype, self.mode, e.init)

    # -- yields --------------------------------------------------------------------------------

    def write(self, y: ir.Yield, out: Array, dtype: DType) -> None:
        axes = self.lets[y.source].axes
        value = cast(self.values[y.source], y.cast or dtype, self.mode).astype(out.dtype)
        if y.map is None and not y.indices and y.combine == "set":
            out[...] = value.reshape(out.shape)
            return
        scope = Scope(axes, {a: (0, n) for a, n in zip(axes, value.shape)}, self.sizes)
        entries: tuple[Expr | None, ...] = y.map if y.map is not None else tuple(var(a) for a in axes)
        index: list[Array] = []
        inside = np.ones(value.shape, np.bool_)
        operands = iter(y.indices)
        for entry, size in zip(entries, out.shape):
            if entry is not None:
                index.append(np.broadcast_to(scope.index(entry), value.shape).reshape(-1))
                continue
            let = next(operands)
            i = np.broadcast_to(self.positional(let, self.lets[let].axes, scope), value.shape).astype(np.int64)
            i, ok = apply_policy(i, size, y.bounds, False, f"{self.region.name}: {y.to}")
            inside = inside if ok is None else inside & ok
            index.append(i.reshape(-1))
        keep = inside.reshape(-1)
        place = tuple(i[keep] for i in index)
        values = value.reshape(-1)[keep]
        combine(y.combine, out, place, values)


def _is_scanned(let: ir.Let, axis: str) -> bool:
    return isinstance(let.expr, ir.Scan) and let.expr.axis == axis
