"""Meaning of tiny: every op in numpy, in one of the two modes of `core.numbers.numerics` (D2.15).

Loops: ``CALL loop`` has src (trip count i64, condition bool, carried…, invariants…) and one target whose inputs are (iteration
i64, condition bool, carried…, invariants…) and whose outputs are (condition, carried…, scanned…). `attrs` has the number of
`carried` values. Results are the final carried values, then the scanned values stacked along a new axis 0; `new_symbols` are
the number of iterations that ran, the sizes of the last state and those of the rows. Symbols of the body in `attrs["varying"]`
have another value in each iteration. The loop runs while the iteration is below the trip count and the condition holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, assert_never

import numpy as np

from tatami.core.algebra.visit import concrete, evaluate, free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Var
from tatami.core.module import Module
from tatami.core.numbers import numerics
from tatami.core.numbers.numerics import Mode, cast, constant, storage_dtype
from tatami.core.numbers.run_programs import Machine, Observe
from tatami.core.sizes.binding import bind_results, check_new_sizes
from tatami.core.tensor import numpy_dtype
from tatami.tiny import ir
from tatami.tiny.meaning.contraction import LIMIT, contract, lone_products
from tatami.tiny.meaning.routines import ROUTINES

Array: TypeAlias = np.ndarray
Sizes: TypeAlias = dict[str, int]
Value: TypeAlias = "Array | tuple[Array, ...]"


def run(
    module: Module[ir.Program],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "declared",
    observe: Observe | None = None,
) -> dict[str, Array]:
    """The outputs of `main` by tensor name. `setup`, if the module has one, runs first and computes the const_pool inputs."""
    return _Machine(module, mode, observe).run(inputs, sizes)


class _Machine(Machine[ir.Program]):
    def new_symbols(self, program: ir.Program) -> frozenset[str]:
        return frozenset(s for n in program.nodes if isinstance(n.op, ir.CallOp) for s in n.op.new_symbols)

    def program(self, name: str, arguments: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """Run one program on positional arguments; a value is dropped after its last use."""
        program = self.module.programs[name]
        by_tensor = {port.tensor: a for port, a in zip(program.signature.inputs, arguments)}
        sizes = dict(sizes)
        last: dict[str, int] = {}
        for position, node in enumerate(program.nodes):
            for s in node.src:
                last[s] = position
        for out in program.outputs:
            last[out] = len(program.nodes)
        values: dict[str, Value] = {}
        deferred = self.deferred_products(program, sizes)
        by_id = {n.id: n for n in program.nodes if n.id in deferred}
        value: Value | None
        for position, node in enumerate(program.nodes):
            if node.id in deferred:  # the product is represented by a tuple of its operands
                values[node.id] = (np.asarray(values[node.src[0]]), np.asarray(values[node.src[1]]))
                value = None
            elif node.src and node.src[0] in deferred:
                left, right = values[node.src[0]]
                value = contract(by_id[node.src[0]], node, left, right, self.mode)
            else:
                value = self.node(node, [values[s] for s in node.src], by_tensor, sizes)
                if isinstance(node.op, ir.CallOp):
                    check_new_sizes(program.signature, node.op.new_symbols, sizes)
            if value is not None:
                values[node.id] = value
                if self.observe is not None and not isinstance(value, tuple):
                    self.observe(name, node.id, value)
            for s in node.src:
                if last.get(s) == position:
                    values.pop(s, None)
        return [np.asarray(values[out]) for out in program.outputs]

    def deferred_products(self, program: ir.Program, sizes: Sizes) -> frozenset[str]:
        """Large products that only a sum reads: they are summed directly, never formed, and not observed."""
        products = lone_products(program)
        by_id = {n.id: n for n in program.nodes if n.id in products}
        symbols = sizes.keys()
        return frozenset(
            i
            for i, n in by_id.items()
            if all(free_vars(s) <= symbols for s in n.shape) and np.prod(concrete(n.shape, sizes), dtype=np.float64) > LIMIT
        )

    def node(self, node: ir.Node, src: list[Value], inputs: Mapping[str, Array], sizes: Sizes) -> Value:
        """The value of one node from its operands' values."""
        match node.op:
            case ir.InputOp(tensor_id=tensor):
                return inputs[tensor]
            case ir.CallOp():
                return self.call(node, node.op, [np.asarray(s) for s in src], sizes)
            case ir.ResultOp(index=index):
                return src[0][index]
            case _:
                return evaluate_node(node, [np.asarray(s) for s in src], sizes, self.mode)

    def call(self, node: ir.Node, op: ir.CallOp, src: list[Array], sizes: Sizes) -> tuple[Array, ...]:
        match op.kind:
            case "program" | "if" | "loop":
                return tuple(self.control(op.kind, op, op.results, src, sizes))
            case "routine" | "host":
                name = op.targets[0]
                if name not in ROUTINES:
                    raise fail("UnknownOp", node.id, f"no routine {name!r}", f"the routines are {', '.join(sorted(ROUTINES))}")
                results = ROUTINES[name](src, op.attrs)
                bind_results([t.shape for t in op.results], [np.shape(r) for r in results], op.new_symbols, sizes)
                return tuple(cast(np.asarray(r), t.dtype, self.mode) for r, t in zip(results, op.results))
            case _:
                assert_never(op.kind)


def evaluate_node(node: ir.Node, src: Sequence[Array], sizes: Mapping[str, int], mode: Mode = "declared") -> Array:
    """The value of one pure node (anything but INPUT, CALL and RESULT)."""
    op = node.op
    match op:
        case ir.ConstOp(value=value):
            return constant(value, node.dtype, mode)
        case ir.SizeOp(value=value):
            return constant(int(evaluate(value, sizes)), node.dtype, mode)
        case ir.IotaOp(axis=axis):
            shape = concrete(node.shape, sizes)
            line = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
            return cast(np.broadcast_to(line, shape), node.dtype, mode)
        case ir.ReshapeOp(result_shape=result_shape):
            return _reshape(node, src[0], concrete(result_shape, sizes))
        case ir.PermuteOp(perm=perm):
            return np.transpose(src[0], perm)
        case ir.ExpandOp(result_shape=result_shape, broadcast_dimensions=dims):
            return _expand(src[0], concrete(result_shape, sizes), dims)
        case ir.PadOp(pad=pad, value=value):
            widths = [(int(evaluate(lo, sizes)), int(evaluate(hi, sizes))) for lo, hi in pad]
            return _pad(src[0], widths, constant(value, node.dtype, mode))
        case ir.ShrinkOp(lo=lo, hi=hi, step=step):
            return src[0][tuple(slice(a, b, s) for a, b, s in zip(concrete(lo, sizes), concrete(hi, sizes), step))]
        case ir.FlipOp(axes=axes):
            return np.flip(src[0], axes)
        case ir.ViewOp(result_shape=result_shape, index_map=index_map):
            return _view(node, index_map, src[0], concrete(result_shape, sizes), sizes)
        case ir.Elementwise(fn=fn):
            if fn == "mul" and any(numpy_dtype(node.dtype) != s.dtype for s in src):
                src = [cast(s, node.dtype, mode) for s in src]
            return np.asarray(numerics.apply(fn, src, node.dtype, mode))
        case ir.CastOp(to=to):
            return cast(src[0], to, mode)
        case ir.BitcastOp(to=to):
            return _bitcast(node, src[0], to, mode)
        case ir.ReduceOp(op=fn, axes=axes, dtype=dtype, init=init):
            return np.asarray(numerics.reduce(fn, src[0], axes, dtype, mode, init))
        case ir.ScanOp(op=fn, axis=axis, dtype=dtype, exclusive=exclusive, reverse=reverse):
            return numerics.scan(fn, src[0], axis, dtype, exclusive, reverse, mode)
        case ir.GatherOp(result_shape=result_shape, map=index_map, bounds=bounds):
            index, inside = _indices(
                node, _IndexMap(index_map, src[0].shape, bounds), list(src[1:]), concrete(result_shape, sizes), sizes
            )
            if 0 in src[0].shape:
                return np.zeros(concrete(result_shape, sizes), src[0].dtype)
            out = np.asarray(src[0][index])
            return out if inside is None else np.where(inside, out, out.dtype.type(0)).astype(out.dtype)
        case ir.ScatterOp():
            return _scatter(node, op, src, sizes)
        case ir.RandOp(result_shape=result_shape):
            shape = concrete(result_shape, sizes)
            count = int(np.prod(shape, dtype=np.int64))
            words = numerics.philox(int(src[0]), np.arange((count + 3) // 4, dtype=np.uint64))
            return words.reshape(-1)[:count].reshape(shape)
        case ir.InputOp() | ir.CallOp() | ir.ResultOp():
            raise TypeError(f"{node.id} is not a pure node")
        case _:
            assert_never(op)


def _reshape(node: ir.Node, x: Array, shape: tuple[int, ...]) -> Array:
    if x.size != int(np.prod(shape, dtype=np.int64)):
        raise fail(
            "AxisAlignmentMismatch",
            node.id,
            f"RESHAPE of {list(x.shape)} ({x.size} elements) to {list(shape)}",
            "pass sizes whose products agree",
        )
    return x.reshape(shape)


def _expand(x: Array, shape: tuple[int, ...], dims: tuple[int, ...]) -> Array:
    order = sorted(range(x.ndim), key=lambda j: dims[j])
    x = np.transpose(x, order)
    aligned = [1] * len(shape)
    for size, j in zip(x.shape, order):
        aligned[dims[j]] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def _pad(x: Array, widths: list[tuple[int, int]], value: Array) -> Array:
    out = np.full([max(0, n + lo + hi) for n, (lo, hi) in zip(x.shape, widths)], value, x.dtype)
    source = tuple(slice(max(0, -lo), n - max(0, -hi)) for n, (lo, hi) in zip(x.shape, widths))
    inner = x[source]
    target = tuple(slice(max(0, lo), max(0, lo) + n) for n, (lo, _) in zip(inner.shape, widths))
    if out.size:
        out[target] = inner
    return out


def _view(node: ir.Node, index_map: Sequence[Expr], x: Array, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Array:
    """The view: strided if the map is linear (windows share memory), else by index arrays."""
    rows = [_linear(e, len(shape), sizes) for e in index_map]
    if any(r is None for r in rows) or 0 in shape or not shape:
        index = _coordinates(index_map, shape, sizes)
        _check_range(node, index, x.shape)
        return np.asarray(x[index])
    linear = [r for r in rows if r is not None]
    ends = [np.array([0, n - 1]) for n in shape]
    for axis, (offset, row) in enumerate(linear):
        low = offset + sum(min(c * e) for c, e in zip(row, ends))
        high = offset + sum(max(c * e) for c, e in zip(row, ends))
        _check_range(node, (np.array([low, high]),), x.shape[axis : axis + 1], axis)
    strides = [sum(row[k] * x.strides[d] for d, (_, row) in enumerate(linear)) for k in range(len(shape))]
    start = x[tuple(slice(offset, None) for offset, _ in linear)]
    return np.lib.stride_tricks.as_strided(start, shape, strides, writeable=False)


def _linear(e: Expr, rank: int, sizes: Mapping[str, int]) -> tuple[int, list[int]] | None:
    """(offset, one factor per axis i0, i1, …) of a linear expression; None if an axis stands in a product of axes or a
    floor."""
    names = {f"i{k}" for k in range(rank)}
    offset, row = 0, [0] * rank
    for mono, coef in e.terms:
        held = [a for a in mono if not free_vars(Expr((((a,), 1),))).isdisjoint(names)]
        rest = int(evaluate(Expr(((tuple(a for a in mono if a not in held), coef),)), sizes))
        if not held:
            offset += rest
        elif len(held) == 1 and isinstance(held[0], Var):
            row[int(held[0].name[1:])] += rest
        else:
            return None
    return offset, row


def _coordinates(index_map: Sequence[Expr], shape: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[Array, ...]:
    """The index arrays of a map over result axes i0, i1, …"""
    env: dict[str, object] = dict(sizes)
    for axis, size in enumerate(shape):
        env[f"i{axis}"] = np.arange(size, dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return tuple(np.broadcast_to(np.asarray(evaluate(e, env), np.int64), shape) for e in index_map)


def _check_range(node: ir.Node, index: Sequence[Array], shape: tuple[int, ...], first: int = 0) -> None:
    for axis, (i, size) in enumerate(zip(index, shape), first):
        if i.size and (int(i.min()) < 0 or int(i.max()) >= size):
            raise fail(
                "IndexOutOfRange",
                node.id,
                f"axis {axis} is read at {int(i.min())} … {int(i.max())} where its size is {size}",
                "keep the index map inside the operand, or PAD it first",
            )


class _IndexMap(NamedTuple):
    """The index of an operand of `shape`: an expression for each axis, None where an operand gives it, and the policy."""

    map: tuple[Expr | None, ...]
    shape: tuple[int, ...]
    bounds: ir.Bounds


def _indices(
    node: ir.Node, at: _IndexMap, operands: list[Array], over: tuple[int, ...], sizes: Mapping[str, int]
) -> tuple[tuple[Array, ...], Array | None]:
    """(index arrays with the out-of-range policy applied, mask of accesses that are inside or None). Only policy zero has a
    mask."""
    index_map, shape, bounds = at
    known = iter(_coordinates([e for e in index_map if e is not None], over, sizes))
    index: list[Array] = []
    inside: Array | None = None
    for entry, size in zip(index_map, shape):
        if entry is not None:
            index.append(next(known))
            continue
        i = np.broadcast_to(operands.pop(0).astype(np.int64), over)
        match bounds:
            case "wrap":
                i = np.where(i < 0, i + size, i)
            case "clamp":
                i = np.clip(i, 0, max(size - 1, 0))
            case "zero":
                ok = (i >= 0) & (i < size)
                inside = ok if inside is None else inside & ok
                i = np.where(ok, i, 0)
            case "error" | "assume":
                pass
            case _:
                assert_never(bounds)
        if i.size and (int(i.min()) < 0 or int(i.max()) >= size) and bounds != "zero":
            raise fail(
                "IndexOutOfRange",
                node.id,
                f"an index is {int(i.min())} … {int(i.max())} where the axis has size {size}",
                "pass indices inside the axis, or choose bounds clamp or zero",
            )
        index.append(i)
    return tuple(index), inside


def _scatter(node: ir.Node, op: ir.ScatterOp, src: Sequence[Array], sizes: Mapping[str, int]) -> Array:
    target, updates = np.array(src[0]), src[1]
    index, inside = _indices(node, _IndexMap(op.map, target.shape, op.bounds), list(src[2:]), updates.shape, sizes)
    flat = tuple(i.reshape(-1) for i in index)
    values = updates.reshape(-1)
    if inside is not None:
        keep = inside.reshape(-1)
        flat, values = tuple(i[keep] for i in flat), values[keep]
    numerics.combine(op.op, target, flat, values)
    return target


def _bitcast(node: ir.Node, x: Array, to: DType, mode: Mode) -> Array:
    if mode == "float64" and x.dtype == np.float64:
        if to.is_float:
            return x
        width = {2: np.float16, 4: np.float32, 8: np.float64}[to.itemsize]
        x = x.astype(width)
    out = np.ascontiguousarray(x).view(numpy_dtype(to)).reshape(x.shape)
    return out.astype(storage_dtype(to, mode))
