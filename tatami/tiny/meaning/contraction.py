"""MUL under REDUCE(SUM) without the product in memory.

The naive product of a matmul or convolution has M*N*K elements. Operands are strided views whose repeated axes have stride 0,
so the strides classify the axes into batch, m, n and k, and one matmul in the accumulation dtype gives the sum. If the product
is rounded separately (its dtype is narrower), it is formed piece by piece instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tatami.core.dtype import DType
from tatami.core.numbers import numerics
from tatami.core.numbers.numerics import Mode, cast, constant, storage_dtype
from tatami.tiny.ir import Elementwise, Node, Program, ReduceOp

Array: TypeAlias = np.ndarray

LIMIT = 1 << 20
"""Maximum number of elements of a product that is formed whole."""


def lone_products(program: Program) -> dict[str, str]:
    """MUL node → the REDUCE(SUM) that is its only reader."""
    readers: dict[str, list[Node]] = {}
    for node in program.nodes:
        for s in node.src:
            readers.setdefault(s, []).append(node)
    out: dict[str, str] = {}
    for node in program.nodes:
        if not isinstance(node.op, Elementwise) or node.op.fn != "mul" or node.id in program.outputs:
            continue
        users = readers.get(node.id, [])
        if len(users) == 1 and isinstance(users[0].op, ReduceOp) and users[0].op.op == "sum":
            out[node.id] = users[0].id
    return out


def contract(product: Node, reduce: Node, left: Array, right: Array, mode: Mode) -> Array:
    """The value of `reduce` over ``left * right``."""
    op = reduce.op
    assert isinstance(op, ReduceOp)
    left, right = np.broadcast_arrays(left, right)
    rounds_product = product.dtype != op.dtype and not (mode == "float64" and product.dtype.is_float)
    if rounds_product:
        return _in_pieces(product, op, left, right, mode)
    compute = np.dtype(np.float32) if mode == "declared" and op.dtype.is_narrow_float else storage_dtype(op.dtype, mode)
    total = _matmul(left, right, op.axes, op.dtype, compute, mode)
    if op.init is not None:
        with np.errstate(all="ignore"):
            total = total + constant(op.init, op.dtype, mode).astype(compute)
    return total.astype(storage_dtype(op.dtype, mode))


def _matmul(left: Array, right: Array, axes: tuple[int, ...], dtype: DType, compute: np.dtype, mode: Mode) -> Array:
    shape = left.shape
    used = [_used_axes(left), _used_axes(right)]
    operands = []
    for x, mine, other in ((left, used[0], used[1]), (right, used[1], used[0])):
        x = x[tuple(slice(None) if a in mine else slice(0, 1) for a in range(x.ndim))]
        x = x.astype(compute) if dtype.is_float else cast(x, dtype, mode)
        alone = tuple(a for a in axes if a in mine and a not in other)
        operands.append(np.add.reduce(x, axis=alone, keepdims=True, dtype=compute) if alone else x)
    kept = [a for a in range(len(shape)) if a not in axes]
    batch = [a for a in kept if a in used[0] and a in used[1]]
    m = [a for a in kept if a in used[0] and a not in used[1]]
    n = [a for a in kept if a in used[1] and a not in used[0]]
    k = [a for a in axes if a in used[0] and a in used[1]]
    rest = [a for a in range(len(shape)) if a not in (*batch, *m, *n, *k)]

    def size(group: Sequence[int]) -> int:
        return int(np.prod([shape[a] for a in group], dtype=np.int64))

    a = np.transpose(operands[0], [*batch, *m, *k, *n, *rest]).reshape(size(batch), size(m), size(k))
    b = np.transpose(operands[1], [*batch, *k, *n, *m, *rest]).reshape(size(batch), size(k), size(n))
    with np.errstate(all="ignore"):
        out = np.matmul(a, b)
        times = size([x for x in axes if x not in used[0] and x not in used[1]])
        if times != 1:
            out = out * out.dtype.type(times)
    present = [*batch, *m, *n]
    out = out.reshape([shape[x] for x in present])
    out = np.transpose(out, sorted(range(len(present)), key=lambda i: present[i]))
    full = out.reshape([shape[x] if x in present else 1 for x in kept])
    return np.broadcast_to(full, [shape[x] for x in kept])


def _used_axes(x: Array) -> frozenset[int]:
    """Axes along which the elements are not one element repeated."""
    return frozenset(a for a in range(x.ndim) if x.shape[a] != 1 and x.strides[a] != 0)


def _in_pieces(product: Node, op: ReduceOp, left: Array, right: Array, mode: Mode) -> Array:
    """The sum along the largest kept axis in pieces, at most LIMIT products at a time."""
    shape = left.shape
    kept = [a for a in range(len(shape)) if a not in op.axes]
    if not kept or left.size <= LIMIT:
        return _direct(product, op, left, right, mode)
    axis = max(kept, key=lambda a: shape[a])
    step = max(1, LIMIT * shape[axis] // left.size)
    pieces = []
    for start in range(0, shape[axis], step):
        part = tuple(slice(start, start + step) if a == axis else slice(None) for a in range(len(shape)))
        pieces.append(_direct(product, op, left[part], right[part], mode))
    return np.concatenate(pieces, axis=kept.index(axis))


def _direct(product: Node, op: ReduceOp, left: Array, right: Array, mode: Mode) -> Array:
    value = numerics.apply("mul", [cast(left, product.dtype, mode), cast(right, product.dtype, mode)], product.dtype, mode)
    return np.asarray(numerics.reduce("sum", np.asarray(value), op.axes, op.dtype, mode, op.init))
