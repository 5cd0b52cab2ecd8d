"""What a Region means, by numpy: every let as an array over its axes (spec 3 §6.11, D2.15).

Inside an expression each axis in scope is one array dimension; a value that does not depend on an axis has extent 1
there, so named-axis broadcasting is numpy's own. Reads under a guard clamp their index: what they give outside is
never used. A sum of a product of two operands that share only part of the scope is a matrix product; any other large
expression is computed in slices of the let's first axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core import numerics
from tatami.core.binding import bind_sizes
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, evaluate, free_vars
from tatami.core.module import Module
from tatami.core.numerics import Mode, cast, constant, storage_dtype
from tatami.core.ops import OPS, result_dtype
from tatami.core.tensor import numpy_dtype
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
    Let,
    Param,
    Program,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Select,
    Step,
    Transpose,
    Unary,
    Within,
    Yield,
)
from tatami.region.walk import Types, all_axes, is_widening
from tatami.tiny.ir import Bounds
from tatami.tiny.run import ROUTINES

Array: TypeAlias = np.ndarray
Sizes: TypeAlias = dict[str, int]
Observe: TypeAlias = Callable[[str, str, Array], None]

MAX_ELEMENTS = 1 << 25
"""Elements of one intermediate before an expression is computed in slices."""


def run(
    module: Module[Program],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "declared",
    observe: Observe | None = None,
) -> dict[str, Array]:
    """The outputs of `main` by tensor name. `setup`, when there is one, runs first and feeds the const_pool inputs."""
    pool: dict[str, Array] = {name: tensor.array for name, tensor in module.constants.items()}
    machine = _Machine(module, mode, observe)
    if "setup" in module.programs:
        setup = module.programs["setup"]
        given = {**pool, **inputs}
        shapes = {p.tensor: np.shape(given[p.tensor]) for p in setup.signature.inputs if p.tensor in given}
        results = machine.program("setup", _arguments(setup, given, mode), bind_sizes(setup.signature, shapes, sizes))
        pool |= {port.tensor: value for port, value in zip(setup.signature.outputs, results)}
    main = module.main
    arguments = _arguments(main, {**pool, **inputs}, mode)
    shapes = {port.tensor: a.shape for port, a in zip(main.signature.inputs, arguments)}
    results = machine.program("main", arguments, bind_sizes(main.signature, shapes, sizes))
    return {port.tensor: value for port, value in zip(main.signature.outputs, results)}


def run_region(
    region: Region,
    tensors: Mapping[str, Array],
    sizes: Mapping[str, int],
    mode: Mode = "declared",
    observe: Observe | None = None,
) -> dict[str, Array]:
    """The outputs of one Region by name. `tensors` has its inputs."""
    return _RegionRun(region, tensors, sizes, mode, observe, "main").outputs()


def _arguments(program: Program, given: Mapping[str, Array], mode: Mode) -> list[Array]:
    out: list[Array] = []
    for port in program.signature.inputs:
        if port.tensor not in given:
            names = ", ".join(p.tensor for p in program.signature.inputs)
            raise fail("InputMismatch", port.tensor, "the input is missing", f"pass it; the inputs are {names}")
        array = np.asarray(given[port.tensor])
        wanted = (numpy_dtype(port.dtype), storage_dtype(port.dtype, mode))
        if array.dtype not in wanted and not (mode == "float64" and port.dtype.is_float and array.dtype.kind == "f"):
            raise fail(
                "InputMismatch",
                port.tensor,
                f"the array is {array.dtype}, the signature says {port.dtype}",
                f"convert it to {port.dtype} before the call",
            )
        out.append(cast(array, port.dtype, mode))
    return out


def _concrete(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(max(0, int(evaluate(s, sizes))) for s in shape)


class _Machine:
    """Runs programs of one module."""

    def __init__(self, module: Module[Program], mode: Mode, observe: Observe | None) -> None:
        self.module = module
        self.mode = mode
        self.observe = observe

    def program(self, name: str, arguments: Sequence[Array], sizes: Sizes) -> list[Array]:
        """Run one program on positional arguments; a tensor is dropped after its last use."""
        program = self.module.programs[name]
        sizes = dict(sizes)
        values: dict[str, Array] = dict(zip(program.inputs, arguments, strict=True))
        last: dict[str, int] = {}
        for position, item in enumerate(program.body):
            for used in _operands(item):
                last[used] = position
        keep = set(program.outputs)
        for position, item in enumerate(program.body):
            made = self.region(name, item, values, sizes) if isinstance(item, Region) else self.step(item, values, sizes)
            for made_name, array in made.items():
                values[made_name] = array
                if self.observe is not None:
                    self.observe(name, made_name, array)
            for used in _operands(item):
                if last[used] == position and used not in keep:
                    values.pop(used, None)
        return [values[out] for out in program.outputs]

    def region(self, program: str, region: Region, values: Mapping[str, Array], sizes: Sizes) -> dict[str, Array]:
        return _RegionRun(region, values, sizes, self.mode, self.observe, program).outputs()

    def step(self, step: Step, values: Mapping[str, Array], sizes: Sizes) -> dict[str, Array]:
        src = [values[i] for i in step.inputs]
        match step.kind:
            case "program":
                results = self.callee(step, step.targets[0], src, sizes)
            case "if":
                results = self.callee(step, step.targets[0 if bool(src[0]) else 1], src[1:], sizes)
            case "loop":
                results = self.loop(step, src, sizes)
            case "host":
                results = _routine(step.name, step.targets[0], src, step.attrs)
            case _:
                assert_never(step.kind)
        if step.kind != "loop":
            for param, array in zip(step.outputs, results):
                for size, actual in zip(param.memref.shape, np.shape(array)):
                    symbol = size.as_name()
                    if symbol in step.new_symbols:
                        sizes[symbol] = actual
        return {p.name: cast(np.asarray(r), p.memref.dtype, self.mode) for p, r in zip(step.outputs, results)}

    def callee(self, step: Step, name: str, arguments: Sequence[Array], sizes: Sizes) -> list[Array]:
        signature = self.module.programs[name].signature
        given = {symbol: int(evaluate(size, sizes)) for symbol, size in step.sizes.items() if free_vars(size) <= sizes.keys()}
        bound = bind_sizes(signature, {p.tensor: a.shape for p, a in zip(signature.inputs, arguments)}, given)
        return self.program(name, arguments, bound)

    def loop(self, step: Step, src: list[Array], sizes: Sizes) -> list[Array]:
        """As CALL loop of tiny: (trip count, condition, carried…, invariants…)."""
        count = int(step.attrs.get("carried", len(src) - 2))  # type: ignore[arg-type]
        trip, condition = int(src[0]), bool(src[1])
        carried, invariants = src[2 : 2 + count], src[2 + count :]
        scanned: list[list[Array]] = [[] for _ in step.outputs[count:]]
        iteration = 0
        while iteration < trip and condition:
            arguments = [np.asarray(iteration, np.int64), np.asarray(condition), *carried, *invariants]
            results = self.callee(step, step.targets[0], arguments, sizes)
            condition, carried = bool(results[0]), results[1 : 1 + count]
            for column, value in zip(scanned, results[1 + count :]):
                column.append(value)
            iteration += 1
        if step.new_symbols:
            sizes[step.new_symbols[0]] = iteration
        stacked = [
            np.stack(column) if column else np.zeros((0, *_concrete(p.memref.shape[1:], sizes)), self._storage(p))
            for column, p in zip(scanned, step.outputs[count:])
        ]
        return [*carried, *stacked]

    def _storage(self, param: Param) -> np.dtype:
        return storage_dtype(param.memref.dtype, self.mode)


def _operands(item: Region | Step) -> tuple[str, ...]:
    if isinstance(item, Step):
        return item.inputs
    return (*(p.name for p in item.inputs), *(t.updates for t in item.outputs if t.updates))


def _routine(at: str, name: str, src: Sequence[Array], attrs: Mapping[str, object]) -> list[Array]:
    if name not in ROUTINES:
        raise fail("UnknownOp", at, f"no routine {name!r}", f"the routines are {', '.join(sorted(ROUTINES))}")
    return list(ROUTINES[name](src, attrs))


class _Scope:
    """Axes in order, one array dimension each, and the part of each axis that is being computed."""

    def __init__(self, axes: tuple[str, ...], ranges: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> None:
        self.axes = axes
        self.ranges = ranges
        self.shape = tuple(ranges[a][1] - ranges[a][0] for a in axes)
        self.sizes = sizes
        self.env: dict[str, object] = dict(sizes)
        for position, axis in enumerate(axes):
            line = np.arange(*ranges[axis], dtype=np.int64)
            self.env[axis] = line.reshape([-1 if p == position else 1 for p in range(len(axes))])

    def inner(self, more: tuple[str, ...], sizes: Mapping[str, int], extents: Mapping[str, Expr]) -> _Scope:
        added = {a: (0, max(0, int(evaluate(extents[a], sizes)))) for a in more}
        return _Scope(self.axes + more, {**self.ranges, **added}, self.sizes)

    def index(self, e: Expr) -> Array:
        value = np.asarray(evaluate(e, self.env), np.int64)
        return value.reshape((1,) * (len(self.axes) - value.ndim) + value.shape)


class _RegionRun:
    """One Region on concrete arrays."""

    def __init__(
        self,
        region: Region,
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
        self.let_axes = {let.name: let.axes for let in region.lets}
        self.values: dict[str, Array] = {}

    def outputs(self) -> dict[str, Array]:
        if self.region.opaque is not None:
            src = [self.tensors[p.name] for p in self.region.inputs]
            results = _routine(self.region.name, self.region.opaque.routine, src, self.region.opaque.attrs)
            return {t.name: cast(np.asarray(r), t.memref.dtype, self.mode) for t, r in zip(self.region.outputs, results)}
        for let in self.region.lets:
            self.values[let.name] = self.let(let)
            if self.observe is not None:
                self.observe(self.program, f"{self.region.name}.{let.name}", self.values[let.name])
        out: dict[str, Array] = {}
        for target in self.region.outputs:
            dtype = storage_dtype(target.memref.dtype, self.mode)
            if target.updates:
                out[target.name] = np.array(self.tensors[target.updates], dtype)
            else:
                out[target.name] = np.zeros(_concrete(target.memref.shape, self.sizes), dtype)
        dtypes = {t.name: t.memref.dtype for t in self.region.outputs}
        for y in self.region.yields:
            self.write(y, out[y.to], dtypes[y.to])
        return out

    # -- lets ----------------------------------------------------------------------------------

    def let(self, let: Let) -> Array:
        shape = _concrete(tuple(self.extents[a] for a in let.axes), self.sizes)
        out = np.empty(shape, storage_dtype(let.dtype, self.mode))
        self._fill(let, out, {a: (0, n) for a, n in zip(let.axes, shape)})
        return out

    def _fill(self, let: Let, out: Array, ranges: dict[str, tuple[int, int]]) -> None:
        """Compute the part of `let` in `ranges`, in slices when it is large."""
        work = [ranges]
        while work:
            part = work.pop()
            extent = {a: hi - lo for a, (lo, hi) in part.items()}
            if 0 in extent.values():
                continue
            widest = max((a for a in let.axes if not _is_scanned(let, a)), key=lambda a: extent[a], default=None)
            if widest is not None and extent[widest] > 1 and self._elements(let.expr, extent) > MAX_ELEMENTS:
                lo, hi = part[widest]
                middle = (lo + hi) // 2
                work += [{**part, widest: (middle, hi)}, {**part, widest: (lo, middle)}]
                continue
            scope = _Scope(let.axes, part, self.sizes)
            value = self.evaluate(let.expr, scope, let.dtype)
            out[tuple(slice(*part[a]) for a in let.axes)] = cast(value, let.dtype, self.mode)

    def _elements(self, e: RegionExpr, extent: Mapping[str, int]) -> int:
        """Elements of the largest array that `e` makes over a scope of `extent`."""
        inner = dict(extent)
        if isinstance(e, Reduce):
            inner |= {a: int(evaluate(self.extents[a], self.sizes)) for a in e.axes}
            if (factors := _product(e)) is not None:
                return max(self._dense(f, inner) for f in factors)
            return self._dense(e.body, inner)
        return self._dense(e, inner)

    def _dense(self, e: RegionExpr, extent: Mapping[str, int]) -> int:
        used = self._axes(e) & extent.keys()
        return int(np.prod([extent[a] for a in used], dtype=np.float64))

    def _axes(self, e: RegionExpr) -> set[str]:
        from tatami.region.walk import index_expressions, nodes

        out: set[str] = set()
        for n in nodes(e):
            for x in index_expressions(n):
                out |= free_vars(x)
            if isinstance(n, Ref):
                out |= set(self.let_axes[n.let])
        return out & self.extents.keys()

    # -- expressions ---------------------------------------------------------------------------

    def evaluate(self, e: RegionExpr, scope: _Scope, wanted: DType | None = None, guarded: bool = False) -> Array:
        """The value over `scope`: rank of the scope, extent 1 where it does not depend on an axis."""
        match e:
            case Read(tensor=tensor, map=entries):
                return self.gather(self.tensors[tensor], [scope.index(m) for m in entries], scope, guarded, e.tensor)
            case ReadAt():
                return self.read_at(e, scope, guarded)
            case Ref(let=let):
                return self.reference(let, scope)
            case At(let=let, map=entries):
                return self.gather(self.values[let], [scope.index(m) for m in entries], scope, guarded, let)
            case Const(value=value, dtype=dtype):
                return constant(value, dtype, self.mode).reshape((1,) * len(scope.axes))
            case Index(value=value, dtype=dtype):
                return cast(scope.index(value), dtype, self.mode)
            case Within(guards=guards):
                out = np.ones((1,) * len(scope.axes), np.bool_)
                for g in guards:
                    index = scope.index(g.index)
                    out = out & (index >= 0) & (index < scope.index(g.size))
                return out
            case Unary(fn=fn, x=x):
                return self.apply(e, fn, [self.evaluate(x, scope, None, guarded)], self.types.of(e))
            case Binary(fn=fn, x=x, y=y):
                a, b = self.evaluate(x, scope, None, guarded), self.evaluate(y, scope, None, guarded)
                dtype = self.types.of(e, wanted)
                if (
                    wanted is not None
                    and dtype == wanted
                    and (operand := self.types.of(x))
                    and is_widening(fn, operand, wanted)
                ):
                    a, b = cast(a, wanted, self.mode), cast(b, wanted, self.mode)
                return self.apply(e, fn, [a, b], dtype)
            case Select(pred=pred, then=then, other=other):
                p = self.evaluate(pred, scope, None, guarded)
                a = self.evaluate(then, scope, wanted, guarded or isinstance(pred, Within))
                return np.where(p, a, self.evaluate(other, scope, wanted, guarded))
            case Cast(x=x, to=to, bits=bits):
                value = self.evaluate(x, scope, None, guarded)
                return self.bitcast(value, self.types.of(x), to) if bits else cast(value, to, self.mode)
            case Reduce():
                return self.reduce(e, scope, guarded)
            case Scan(fn=fn, axis=axis, dtype=dtype, body=body, exclusive=exclusive, reverse=reverse):
                value = self.evaluate(body, scope, dtype, guarded)
                at = scope.axes.index(axis)
                full = [scope.shape[i] if i == at else n for i, n in enumerate(value.shape)]
                return numerics.scan(fn, np.broadcast_to(value, full), at, dtype, exclusive, reverse, self.mode)
            case Random(key=key, counter=counter):
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
            case BroadcastInDim(operand=operand, broadcast_dimensions=dims):
                if isinstance(operand, Ref):
                    return self.positional(self.values[operand.let], tuple(scope.axes[d] for d in dims), scope)
                return self.evaluate(operand, scope, wanted, guarded)
            case Transpose(operand=operand, permutation=permutation):
                if isinstance(operand, Ref):
                    axes = [""] * len(permutation)
                    for j, p in enumerate(permutation):
                        axes[p] = scope.axes[j]
                    return self.positional(self.values[operand.let], tuple(axes), scope)
                return self.evaluate(operand, scope, wanted, guarded)
            case _:
                assert_never(e)

    def apply(self, e: RegionExpr, fn: str, args: list[Array], dtype: DType | None) -> Array:
        if dtype is None:
            known = result_dtype(OPS[fn], (DType.fp32,) * OPS[fn].arity) if fn in OPS else None
            why = f"{fn} is not defined for its operands" if known or fn in OPS else f"there is no op {fn!r}"
            raise fail(
                "DTypeMismatch" if fn in OPS else "UnknownOp", self.region.name, why, "add the cast, or use an op of the table"
            )
        return np.asarray(numerics.apply(fn, args, dtype, self.mode))

    def reference(self, let: str, scope: _Scope) -> Array:
        return self.positional(self.values[let], self.let_axes[let], scope, sliced=True)

    def positional(self, array: Array, axes: tuple[str, ...], scope: _Scope, sliced: bool = False) -> Array:
        """`array`, whose dimension j is scope axis ``axes[j]``, over the scope. Extent-1 dimensions repeat."""
        array = array[
            tuple(slice(None) if n == 1 and not sliced else slice(*scope.ranges[a]) for n, a in zip(array.shape, axes))
        ]
        order = sorted(range(len(axes)), key=lambda j: scope.axes.index(axes[j]))
        shape = [1] * len(scope.axes)
        for j, a in enumerate(axes):
            shape[scope.axes.index(a)] = array.shape[j]
        return np.transpose(array, order).reshape(shape)

    def gather(self, array: Array, index: list[Array], scope: _Scope, guarded: bool, at: str) -> Array:
        if array.ndim != len(index):
            raise fail("InvalidRegion", at, f"a map of {len(index)} entries reads rank {array.ndim}", "give one entry per axis")
        if not index:
            return array.reshape((1,) * len(scope.axes))
        shape = np.broadcast_shapes(*(i.shape for i in index))
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

    def read_at(self, e: ReadAt, scope: _Scope, guarded: bool) -> Array:
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

    def reduce(self, e: Reduce, scope: _Scope, guarded: bool) -> Array:
        inner = scope.inner(e.axes, self.sizes, self.extents)
        rank = len(scope.axes)
        if (factors := _product(e)) is not None and e.dtype != DType.bool:
            x, y = (cast(self.evaluate(f, inner, None, guarded), e.dtype, self.mode) for f in factors)
            if e.dtype.is_narrow_float and self.mode == "declared":
                x, y = x.astype(np.float32), y.astype(np.float32)
            out = _contract(x, y, inner.shape, rank)
            start = constant(0 if e.init is None else e.init, e.dtype, self.mode).astype(out.dtype)
            return cast(out + start, e.dtype, self.mode)
        value = self.evaluate(e.body, inner, e.dtype, guarded)
        full = (*value.shape[:rank], *inner.shape[rank:])
        value = np.broadcast_to(value, full)
        if e.fn in ("argmax", "argmin") and len(e.axes) != 1:
            raise fail("InvalidRegion", self.region.name, f"{e.fn} over {len(e.axes)} axes", "reduce exactly one axis")
        return numerics.reduce(e.fn, value, tuple(range(rank, rank + len(e.axes))), e.dtype, self.mode, e.init)

    # -- yields --------------------------------------------------------------------------------

    def write(self, y: Yield, out: Array, dtype: DType) -> None:
        axes = self.let_axes[y.source]
        value = cast(self.values[y.source], y.cast or dtype, self.mode).astype(out.dtype)
        if y.map is None and not y.indices and y.combine == "set":
            out[...] = value.reshape(out.shape)
            return
        scope = _Scope(axes, {a: (0, n) for a, n in zip(axes, value.shape)}, self.sizes)
        entries: tuple[Expr | None, ...] = y.map if y.map is not None else tuple(_axis(a) for a in axes)
        index: list[Array] = []
        inside = np.ones(value.shape, np.bool_)
        operands = iter(y.indices)
        for entry, size in zip(entries, out.shape):
            if entry is not None:
                index.append(np.broadcast_to(scope.index(entry), value.shape).reshape(-1))
                continue
            let = next(operands)
            i = np.broadcast_to(self.reference(let, scope), value.shape).astype(np.int64)
            i, ok = apply_policy(i, size, y.bounds, False, f"{self.region.name}: {y.to}")
            inside = inside if ok is None else inside & ok
            index.append(i.reshape(-1))
        keep = inside.reshape(-1)
        place = tuple(i[keep] for i in index)
        values = value.reshape(-1)[keep]
        _combine(y, out, place, values)


def apply_policy(i: Array, size: int, bounds: Bounds, guarded: bool, at: str) -> tuple[Array, Array | None]:
    """Index values inside ``0 … size-1`` by the out-of-range policy, and where the access counts (policy zero)."""
    ok: Array | None = None
    match bounds:
        case "wrap":
            i = np.where(i < 0, i + size, i)
        case "clamp":
            i = np.clip(i, 0, max(size - 1, 0))
        case "zero":
            ok = (i >= 0) & (i < size)
            i = np.where(ok, i, 0)
        case "error" | "assume":
            pass
        case _:
            assert_never(bounds)
    if bounds != "zero" and not guarded and i.size and (int(i.min()) < 0 or int(i.max()) >= size):
        raise fail(
            "IndexOutOfRange",
            at,
            f"an index is {int(i.min())} … {int(i.max())} where the axis has size {size}",
            "pass indices inside the axis, or choose bounds clamp or zero",
        )
    return i, ok


def _combine(y: Yield, out: Array, place: tuple[Array, ...], values: Array) -> None:
    """Write in row-major order of the let: the last duplicate of `set` wins, the others combine all."""
    if not values.size:
        return
    narrow = out.dtype.name in ("bfloat16", "float16")
    wide = out.astype(np.float32) if narrow else out
    values = values.astype(wide.dtype)
    match y.combine:
        case "set":
            wide[place] = values
        case "add":
            np.add.at(wide, place, values)
        case "mul":
            np.multiply.at(wide, place, values)
        case "max":
            np.maximum.at(wide, place, values)
        case "min":
            np.minimum.at(wide, place, values)
        case _:
            assert_never(y.combine)
    if narrow:
        out[...] = wide.astype(out.dtype)


def _axis(name: str) -> Expr:
    from tatami.core.expr import var

    return var(name)


def _is_scanned(let: Let, axis: str) -> bool:
    return isinstance(let.expr, Scan) and let.expr.axis == axis


def _product(e: Reduce) -> tuple[RegionExpr, RegionExpr] | None:
    if e.fn == "sum" and isinstance(e.body, Binary) and e.body.fn == "mul":
        return e.body.x, e.body.y
    return None


def _contract(x: Array, y: Array, extents: tuple[int, ...], rank: int) -> Array:
    """``sum over dimensions rank… of x*y`` by one batched matrix product; extent-1 dimensions of an operand repeat."""
    dims = range(len(extents))
    in_x = [x.shape[d] != 1 or extents[d] == 1 for d in dims]
    in_y = [y.shape[d] != 1 or extents[d] == 1 for d in dims]
    reduced = [d for d in dims if d >= rank]
    only_x = tuple(d for d in reduced if in_x[d] and not in_y[d])
    only_y = tuple(d for d in reduced if in_y[d] and not in_x[d])
    repeat = int(np.prod([extents[d] for d in reduced if not in_x[d] and not in_y[d]], dtype=np.int64))
    with np.errstate(all="ignore"):
        if only_x:
            x = np.add.reduce(x, axis=only_x, keepdims=True, dtype=x.dtype)
        if only_y:
            y = np.add.reduce(y, axis=only_y, keepdims=True, dtype=y.dtype)
        kept = [d for d in dims if d < rank]
        batch = [d for d in kept if in_x[d] and in_y[d]]
        m = [d for d in kept if in_x[d] and not in_y[d]]
        n = [d for d in kept if in_y[d] and not in_x[d]]
        none = [d for d in kept if not in_x[d] and not in_y[d]]
        k = [d for d in reduced if in_x[d] and in_y[d]]
        size = lambda group: int(np.prod([extents[d] for d in group], dtype=np.int64))  # noqa: E731
        rest = [d for d in dims if d not in k and d not in batch]
        a = np.transpose(x, [*batch, *[d for d in rest if d in m], *[d for d in rest if d not in m], *k])
        b = np.transpose(y, [*batch, *k, *[d for d in rest if d in n], *[d for d in rest if d not in n]])
        a, b = a.reshape(size(batch), size(m), size(k)), b.reshape(size(batch), size(k), size(n))
        out = np.matmul(a, b) if a.dtype.kind == "f" else np.einsum("bmk,bkn->bmn", a, b)
    if repeat != 1:
        out = out * out.dtype.type(repeat)
    order = [*batch, *m, *n, *none]
    out = out.reshape([extents[d] for d in (*batch, *m, *n)] + [1] * len(none))
    return np.transpose(out, [order.index(d) for d in kept])
