"""Sizes and positions that integers of the data decide: arithmetic on them is part of the program, then one Host step
each reads the result as a size (the operation `extent`), and one program serves every value.

Reshape(x[N, 4], s)   ->   S0, S1 = the numbers of s, with 0 and -1 resolved; x in the shape (S0, S1)
Slice(x[N], a, b)     ->   A, B = a and b counted from the front and clamped to 0..N; x[A:B]
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, product
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode

MAX_READ = 16
"""Sizes that one operand may decide."""


def data_numbers(m: Importer, n: OnnxNode, position: int) -> list[Num] | None:
    """The integers of an operand that is data, each of rank 0 and i64; None where they cannot be read: how many there are has
    to be known."""
    if not m.reads_sizes or not n.has(position):
        return None
    value = m.value(n.inputs[position])
    if not value.is_tensor or m.sizes(value) is not None:
        return None
    kind = m.type_of(value)
    count = 1 if not kind.shape else kind.shape[0].as_int()
    if not kind.dtype.is_int or len(kind.shape) > 1 or count is None or count > MAX_READ:
        return None
    whole = Num(m, m.data(value)).cast(DType.i64)
    return [whole.at(0, i) for i in range(count)] if kind.shape else [whole]


def read_size(m: Importer, number: Num) -> Expr:
    """The number as a size. A negative one is reported when the program runs."""
    symbol = m.fresh_size("S")
    (tensor,) = m.emit("extent", [number.cast(DType.i64).tensor], {"size": symbol})
    return m.shape(tensor)[0]


def read_position(m: Importer, number: Num, size: Expr, low: int = 0) -> Expr:
    """A position of ONNX on an axis: a negative one counts from the end, then it is clamped to low..size+low."""
    length = size_of(m, size, DType.i64)
    counted = number.fn("lt", 0).where(number + length, number)
    clamped = (counted - low).fn("max", 0).fn("min", length)
    return read_size(m, clamped) + low


def read_pad(m: Importer, before: Num, after: Num, size: Expr) -> tuple[Expr, Expr]:
    """The two widths of a border, which may be negative: the first as the difference of two sizes, the second as what is
    left of the result's size, so that this is one symbol and products of sizes stay short."""
    low = read_size(m, before.fn("max", 0)) - read_size(m, before.fn("neg").fn("max", 0))
    whole = read_size(m, before + after + size_of(m, size, DType.i64))
    return low, whole - size - low


def read_shape(m: Importer, numbers: list[Num], shape: Shape, *, allow_zero: bool) -> Shape:
    """The shape a Reshape asks for: 0 copies a size of the operand, -1 takes what is left."""
    if not allow_zero:
        have = [size_of(m, s, DType.i64) for s in shape]
        numbers = [v.fn("eq", 0).where(have[i], v) if i < len(have) else v for i, v in enumerate(numbers)]
    rest = size_of(m, product(shape), DType.i64)
    for v in numbers:
        rest = rest.fn("idiv", v.fn("eq", -1).where(v * 0 + 1, v))
    return tuple(read_size(m, v.fn("eq", -1).where(rest, v)) for v in numbers)


def read_expansion(m: Importer, numbers: list[Num], shape: Shape) -> Shape:
    """The shape an Expand gives: 1 keeps the size of the operand; that other sizes agree is checked when they are read."""
    kept = (ONE,) * (len(numbers) - len(shape)) + shape
    out = [
        read_size(m, v if s == ONE else v.fn("eq", 1).where(size_of(m, s, DType.i64), v))
        for v, s in zip(numbers, kept[len(kept) - len(numbers) :], strict=True)
    ]
    return (*shape[: len(shape) - len(numbers)], *out) if len(numbers) < len(shape) else tuple(out)


def read_range(m: Importer, start: Num, limit: Num, delta: Num) -> Num:
    """start, start + delta, … before limit: ceil((limit - start) / delta) of them."""
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
