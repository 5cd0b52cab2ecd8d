"""Sizes and positions that integers of the data decide: arithmetic on them is part of the program; then one Host step reads
all integers of an operand as sizes (the operations `extent` and `extents`). One program serves every value.

    Reshape(x[N, 4], s)   ->   S0, S1 = the numbers of s, with 0 and -1 resolved; x in the shape (S0, S1)
    Slice(x[N], a, b)     ->   A, B = a and b counted from the front and clamped to 0..N; x[A:B]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np

from tatami.core.algebra.order import greatest
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, ceildiv, expr, minimum, product
from tatami.frontend.ir import Node
from tatami.frontend.operation import attributes
from tatami.frontend.ops import OPS
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode

MAX_READ = 16
"""Maximum number of sizes that one operand may decide."""


Entry: TypeAlias = Num | Expr
"""An integer of an operand: a rank-0 i64 tensor of the data, or a size."""


def data_numbers(m: Importer, n: OnnxNode, position: int) -> list[Entry] | None:
    """The integers of an operand that is data; those that are known sizes are sizes. None if they cannot be read: their number
    must be known."""
    if not m.reads_sizes or not n.has(position):
        return None
    value = m.value(n.inputs[position])
    if not value.is_tensor or m.sizes(value) is not None:
        return None
    kind = m.type_of(value)
    count = 1 if not kind.shape else kind.shape[0].as_int()
    if not kind.dtype.is_int or len(kind.shape) > 1 or count is None or count > MAX_READ:
        return None
    tensor = m.data(value)
    return [_entry(m, tensor, i) for i in range(count)] if kind.shape else [_entry(m, tensor, None)]


def _entry(m: Importer, tensor: str, position: int | None) -> Entry:
    """One integer of a tensor of rank 1 (`position`) or 0 (None), traced through nodes that only move integers."""
    name, index = _origin(m, tensor, () if position is None else (position,), INTEGERS)
    if isinstance(name, Expr):
        return name
    if name in m.constants:
        return expr(int(m.constants[name].array[index]))
    return _number(m, name, index)


def size_in_float(m: Importer, tensor: str) -> Expr | None:
    """The size that a rank-0 tensor of floats is: a size of an axis after Cast. None for other numbers. An open size is assumed
    to be at most EXACT."""
    found, _ = _origin(m, tensor, (), {*INTEGERS, DType.fp32, DType.fp64})
    if m.dtype(tensor) not in (DType.fp32, DType.fp64) or not isinstance(found, Expr):
        return None
    number = found.as_int()
    if number is None:
        m.assume(minimum(found, EXACT), found)
    return found if number is None or abs(number) <= EXACT else None


INTEGERS = frozenset((DType.i32, DType.i64))
"""Dtypes of sizes in a model; a cast between them moves an integer."""
EXACT = 2**24
"""fp32 holds every integer up to it."""


def _origin(m: Importer, tensor: str, index: tuple[int, ...], dtypes: Collection[DType]) -> tuple[str | Expr, tuple[int, ...]]:
    """Where an element of a tensor comes from, through nodes that only move it and casts between `dtypes`: a size, or a tensor
    and the index in it."""
    made = {o: node for node in m.nodes for o in node.outputs}
    while tensor in made:
        node = made[tensor]
        if node.op == "size":
            return expr(attributes(OPS["size"], node).value), ()
        step = _moved_from(m, node, index, dtypes)
        if step is None:
            break
        tensor, index = step
    return tensor, index


def _moved_from(
    m: Importer, node: Node, index: tuple[int, ...], dtypes: Collection[DType]
) -> tuple[str, tuple[int, ...]] | None:
    """The operand of `node`, and the index in it, from which element `index` of the result comes; None if the element is
    computed, or sizes are open. A cast from one of `dtypes` to another leaves an element as it is."""
    shapes = [[s.as_int() for s in m.shape(i)] for i in node.inputs if i]
    if not shapes or any(s is None for shape in (*shapes, [s.as_int() for s in m.shape(node.outputs[0])]) for s in shape):
        return None
    sizes = [tuple(s or 0 for s in shape) for shape in shapes]
    attrs = attributes(OPS[node.op], node)
    match node.op:
        case "identity":
            return node.inputs[0], index
        case "cast" if attrs.to in dtypes and m.dtype(node.inputs[0]) in dtypes:
            return node.inputs[0], index
        case "reshape" | "squeeze" | "unsqueeze":
            whole = tuple(s.as_int() or 0 for s in m.shape(node.outputs[0]))
            place = int(np.ravel_multi_index(index, whole)) if whole else 0
            return node.inputs[0], tuple(map(int, np.unravel_index(place, sizes[0]))) if sizes[0] else ()
        case "permute":
            back = {axis: index[k] for k, axis in enumerate(attrs.perm)}
            return node.inputs[0], tuple(back[k] for k in range(len(index)))
        case "flip":
            axes = {a % len(index) for a in attrs.axes}
            return node.inputs[0], tuple(sizes[0][a] - 1 - i if a in axes else i for a, i in enumerate(index))
        case "slice":
            starts = [s.as_int() for s in attrs.starts]
            steps = attrs.steps or [1] * len(index)
            if None in starts:
                return None
            return node.inputs[0], tuple((s or 0) + i * step for s, i, step in zip(starts, index, steps, strict=True))
        case "concat":
            axis = attrs.axis % len(index)
            for operand, shape in zip(node.inputs, sizes, strict=True):
                if index[axis] < shape[axis]:
                    return operand, index
                index = (*index[:axis], index[axis] - shape[axis], *index[axis + 1 :])
    return None


def _number(m: Importer, tensor: str, index: tuple[int, ...]) -> Num:
    """One element as a rank-0 tensor."""
    out = Num(m, tensor).cast(DType.i64)
    for place in index:
        out = out.at(0, place)
    return out


def as_number(m: Importer, entry: Entry) -> Num:
    """The entry as a rank-0 i64 tensor."""
    return entry if isinstance(entry, Num) else size_of(m, entry, DType.i64)


def read_sizes(m: Importer, entries: Sequence[Entry]) -> tuple[Expr, ...]:
    """The integers as sizes, read by one Host step. A negative one is reported when the program runs."""
    tensors = {e.cast(DType.i64).tensor: None for e in entries if isinstance(e, Num)}
    found: tuple[str, ...] = ()
    stem = m.fresh_size("S")
    if len(tensors) == 1:
        found = m.emit("extent", list(tensors), {"size": stem})
    elif tensors:
        found = m.emit("extents", list(tensors), {"new": tuple(f"{stem}_{k}" for k in range(len(tensors)))})
    sizes = {t: m.shape(f)[0] for t, f in zip(tensors, found, strict=True)}
    return tuple(sizes[e.cast(DType.i64).tensor] if isinstance(e, Num) else e for e in entries)


def read_size(m: Importer, number: Entry) -> Expr:
    """The number as a size. A negative one is reported when the program runs."""
    return read_sizes(m, [number])[0]


def read_positions(m: Importer, positions: Sequence[tuple[Entry, Expr, int]]) -> tuple[Expr, ...]:
    """ONNX positions on axes as sizes. Each is given as (position, axis size, lowest value): a negative position counts from
    the end, then it is clamped to low..size+low. Positions that no data decide stay unchanged."""
    clamped: list[Entry] = []
    for entry, size, low in positions:
        if isinstance(entry, Num):
            length = size_of(m, size, DType.i64)
            counted = entry.fn("lt", 0).where(entry + length, entry)
            entry = (counted - low).fn("max", 0).fn("min", length)
        clamped.append(entry)
    found = zip(read_sizes(m, clamped), positions, strict=True)
    return tuple(s + low if isinstance(entry, Num) else s for s, (entry, _, low) in found)


def read_position(m: Importer, number: Num, size: Expr) -> Expr:
    """One position on an axis, from 0 to its size."""
    return read_positions(m, [(number, size, 0)])[0]


def read_pads(m: Importer, pads: Sequence[tuple[Entry, Entry, Expr]]) -> tuple[tuple[Expr, Expr], ...]:
    """The two widths of borders, each with the axis's size. They may be negative: the first is the difference of two sizes,
    the second the rest of the result's size, which is then one symbol, so that products of sizes stay short."""
    read: list[Entry] = []
    for before, after, size in pads:
        if isinstance(before, Num):
            read += [before.fn("max", 0), before.fn("neg").fn("max", 0)]
        if isinstance(before, Num) or isinstance(after, Num):
            read.append(as_number(m, before) + as_number(m, after) + size_of(m, size, DType.i64))
    found = iter(read_sizes(m, read))
    out: list[tuple[Expr, Expr]] = []
    for before, after, size in pads:
        low = next(found) - next(found) if isinstance(before, Num) else before
        is_read = isinstance(before, Num) or isinstance(after, Num)
        out.append((low, next(found) - size - low if is_read else expr_of(after)))
    return tuple(out)


def expr_of(entry: Entry) -> Expr:
    """The entry, which is known to be a size."""
    assert not isinstance(entry, Num)
    return entry


def read_shape(m: Importer, entries: Sequence[Entry], shape: Shape, *, allow_zero: bool) -> Shape:
    """The shape of a Reshape: 0 copies a size of the operand, -1 stands for the remaining elements."""
    asked = list(entries)
    if not allow_zero:
        for i, (e, s) in enumerate(zip(entries, shape, strict=False)):
            if isinstance(e, Num):
                asked[i] = e.fn("eq", 0).where(size_of(m, s, DType.i64), e)
            elif e == ZERO:
                asked[i] = s
    rest = size_of(m, product(shape), DType.i64)
    for e in asked:
        if isinstance(e, Num):
            rest = rest.fn("idiv", e.fn("eq", -1).where(e * 0 + 1, e))
        elif e != expr(-1):
            rest = rest.fn("idiv", as_number(m, e))
    is_given = any(e == expr(-1) for e in asked if not isinstance(e, Num))  # no second entry may be -1
    return read_sizes(m, [_filled(e, rest, is_given=is_given) for e in asked])


def _filled(entry: Entry, rest: Num, *, is_given: bool) -> Entry:
    if isinstance(entry, Num):
        return entry if is_given else entry.fn("eq", -1).where(rest, entry)
    return rest if entry == expr(-1) else entry


def read_expansion(m: Importer, entries: Sequence[Entry], shape: Shape) -> Shape:
    """The shape of an Expand: 1 keeps the operand's size; other sizes are checked for equality when they are read."""
    kept = (ONE,) * (len(entries) - len(shape)) + shape
    asked: list[Entry] = []
    for e, s in zip(entries, kept[len(kept) - len(entries) :], strict=True):
        if isinstance(e, Num):
            asked.append(e if s == ONE else e.fn("eq", 1).where(size_of(m, s, DType.i64), e))
        else:
            asked.append(s if e == ONE else e)
    out = read_sizes(m, asked)
    return (*shape[: len(shape) - len(entries)], *out) if len(entries) < len(shape) else out


def size_range(m: Importer, start: Expr, limit: Expr, delta: int, dtype: DType) -> Num:
    """start, start + delta, … before limit, all of them sizes, as integers of `dtype`; delta is not 0."""
    length = greatest(0, ceildiv(limit - start, expr(delta)) if delta > 0 else ceildiv(start - limit, expr(-delta)))
    return Num(m, m.one("iota", [], {"shape": (length,), "axis": 0, "dtype": dtype, "start": start, "step": delta}))


def read_range(m: Importer, start: Num, limit: Num, delta: Num) -> Num:
    """start, start + delta, … before limit: ceil((limit - start) / delta) numbers."""
    distance = limit - start
    if start.dtype.is_float:
        count = (distance / delta).fn("ceil")
    else:
        count = distance.fn("idiv", delta)
        short = (count * delta).fn("eq", distance).fn("not")
        same_way = distance.fn("gt", 0).fn("eq", delta.fn("gt", 0))
        count = count + short.fn("and", same_way).cast(count.dtype)
    length = read_size(m, count.cast(DType.i64).fn("max", 0))
    place = Num(m, m.one("iota", [], {"shape": (length,), "axis": 0})).cast(start.dtype)
    return start + place * delta
