"""Crops of images, inverses of matrices, masks of repeated n-grams, hashes."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import expr, product
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.images.sampling import channels_last
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention_core import position
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import integers, unsupported
from tatami.onnx.operators.linear_algebra import MAX_ORDER
from tatami.onnx.values import Value


def _inverse(m: Importer, n: OnnxNode) -> list[Value]:
    """Gauss-Jordan elimination of [A | I] with the largest pivot of each column, over all matrices at once."""
    x = Num(m, m.operand(n, 0))
    order = x.shape[-1].as_int()
    if order is None or order > MAX_ORDER:
        raise unsupported(m, f"the inverse of matrices of order {x.shape[-1]}", f"use an order up to {MAX_ORDER}")
    kind = DType.fp64 if x.dtype == DType.fp64 else DType.fp32
    batch = product(x.shape[:-2])
    a = x.cast(kind).reshape(batch, order, order)
    eye = Num(m, m.one("eye", [], {"rows": order, "columns": order, "dtype": kind}))
    eye = eye.unsqueeze(0).fn("expand", shape=(batch, order, order))
    a = Num(m, m.one("concat", [a.tensor, eye.tensor], {"axis": 2}))
    row = position(m, expr(order))
    for i in range(order):
        place = a.at(2, i).part(1, i, order).fn("abs").fn("argmax", axis=1) + i
        largest = Num(m, m.one("gather_nd", [a.tensor, place.unsqueeze(1).tensor], {"batch": 1}))
        a = row.fn("eq", place.unsqueeze(1)).unsqueeze(2).where(a.part(1, i, i + 1), a)
        scaled = largest / largest.part(1, i, i + 1)
        rest = a - a.part(2, i, i + 1) * scaled.unsqueeze(1)
        a = row.fn("eq", i).reshape(1, order, 1).where(scaled.unsqueeze(1), rest)
    return [m.result(a.part(2, order, 2 * order).cast(x.dtype).reshape(*x.shape).tensor)]


def _line(m: Importer, low: Num, high: Num, size: Num, count: int) -> Num:
    """[R, count] coordinates from low to high, both included; a single coordinate is in the middle."""
    last = size - 1.0
    if count == 1:
        return ((low + high) * last * 0.5).unsqueeze(1)
    step = (high - low) * last / float(count - 1)
    return (low * last).unsqueeze(1) + position(m, expr(count)).cast(low.dtype) * step.unsqueeze(1)


def _crop_and_resize(m: Importer, n: OnnxNode) -> list[Value]:
    """CropAndResize: boxes [R, 4] as y1, x1, y2, x2 in fractions of the image; `extrapolation_value` outside it."""
    x, boxes, batch = (Num(m, m.operand(n, i)) for i in range(3))
    sizes = [s.as_int() for s in integers(m, n, 3, "crop_size") or ()]
    height, width = (s or 0 for s in sizes)
    if not height or not width:
        raise unsupported(m, "CropAndResize to a size that is not a number", "give the size as an initialiser")
    kind = DType.fp64 if x.dtype == DType.fp64 else DType.fp32
    corners = [boxes.cast(kind).at(1, i) for i in range(4)]
    sides = [size_of(m, x.shape[2 + i], kind) for i in range(2)]
    ys, xs = (_line(m, corners[i], corners[i + 2], sides[i], c) for i, c in enumerate((height, width)))
    outside = [p.fn("lt", 0.0).fn("or", p.fn("gt", s - 1.0)) for p, s in zip((ys, xs), sides, strict=True)]
    image, planes = batch.cast(DType.i64).unsqueeze(1, 2), channels_last(x.cast(kind), 1)

    def read(y: Num, at: Num) -> Num:
        """[R, height, width, C] of rows and columns that are inside the image."""
        shape = (boxes.shape[0], expr(height), expr(width))
        parts = [image, y.cast(DType.i64).unsqueeze(2), at.cast(DType.i64).unsqueeze(1)]
        index = m.one("stack", [p.fn("expand", shape=shape).tensor for p in parts], {"axis": 3})
        return Num(m, m.one("gather_nd", [planes.tensor, index]))

    ys, xs = (p.fn("max", 0.0).fn("min", s - 1.0) for p, s in zip((ys, xs), sides, strict=True))
    if n.attr("mode", "bilinear") == "nearest":
        out = read((ys + 0.5).fn("floor").fn("min", sides[0] - 1.0), (xs + 0.5).fn("floor").fn("min", sides[1] - 1.0))
    else:
        (top, bottom), (left, right) = ((p.fn("floor"), p.fn("ceil")) for p in (ys, xs))
        down, across = (ys - top).unsqueeze(2, 3), (xs - left).unsqueeze(1, 3)
        upper = read(top, left) + (read(top, right) - read(top, left)) * across
        lower = read(bottom, left) + (read(bottom, right) - read(bottom, left)) * across
        out = upper + (lower - upper) * down
    beyond = outside[0].unsqueeze(2).fn("or", outside[1].unsqueeze(1)).unsqueeze(3)
    fill = Num(m, m.one("full", [], {"shape": out.shape, "value": float(n.attr("extrapolation_value", 0.0)), "dtype": kind}))
    return [m.result(beyond.where(fill, out).cast(x.dtype).permute(0, 3, 1, 2).tensor)]


def _no_repeats(m: Importer, n: OnnxNode) -> list[Value]:
    """NGramRepeatBlock: -inf for each token that would complete an n-gram that the row [B, S] already contains."""
    ids, scores, size = Num(m, m.operand(n, 0)).cast(DType.i64), Num(m, m.operand(n, 1)), n.attr("ngram_size")
    length = ids.shape[1]
    number = length.as_int()
    if number is None:
        raise unsupported(m, "NGramRepeatBlock of rows of open length", "give the rows a length that is a number")
    count = number - size + 1
    if count <= 0:
        return [m.result(scores.tensor)]
    same: Num | None = None
    for i in range(size - 1):
        equal = ids.part(1, i, i + count).fn("eq", ids.part(1, count + i, count + i + 1))
        same = equal if same is None else same.fn("and", equal)
    ends = ids.part(1, size - 1, number)
    if same is None:  # an n-gram of one token: every token of the row
        same = Num(m, m.one("full", [], {"shape": ends.shape, "value": True, "dtype": DType.bool}))
    low, high = (Num(m, m.one("full", [], {"shape": ends.shape, "value": v, "dtype": scores.dtype})) for v in _INFINITE)
    banned = same.where(low, high)
    return [m.result(m.one("scatter", [scores.tensor, ends.tensor, banned.tensor], {"axis": 1, "op": "min"}))]


_INFINITE = (float("-inf"), float("inf"))


def _murmur_hash(m: Importer, n: OnnxNode) -> list[Value]:
    """MurmurHash3_x86_32 (Appleby, public domain) of each number's 4 or 8 bytes."""
    x = Num(m, m.operand(n, 0))
    bits = x.dtype.bits
    if bits not in (32, 64):
        raise unsupported(m, f"MurmurHash3 of {x.dtype}", "hash numbers of 32 or 64 bits")
    whole = Num(m, m.one("bitcast", [x.tensor], {"to": DType.u32 if bits == 32 else DType.u64}))
    blocks = [whole] if bits == 32 else [whole.fn("bitand", 0xFFFFFFFF), whole.fn("shr", 32)]
    seed = int(n.attr("seed", 0)) & 0xFFFFFFFF
    h = Num(m, m.one("full", [], {"shape": x.shape, "value": seed, "dtype": DType.u32}))
    for block in blocks:
        k = _rotated(block.cast(DType.u32) * 0xCC9E2D51, 15) * 0x1B873593
        h = _rotated(h.fn("bitxor", k), 13) * 5 + 0xE6546B64
    h = h.fn("bitxor", bits // 8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = h.fn("bitxor", h.fn("shr", shift)) * factor
    h = h.fn("bitxor", h.fn("shr", 16))
    return [m.result(h.tensor if n.attr("positive", 1) else m.one("bitcast", [h.tensor], {"to": DType.i32}))]


def _rotated(x: Num, by: int) -> Num:
    """Bits rotated to the left by `by`."""
    return x.fn("shl", by).fn("bitor", x.fn("shr", 32 - by))


MATRICES: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Inverse": _inverse,
    "CropAndResize": _crop_and_resize,
    "NGramRepeatBlock": _no_repeats,
    "MurmurHash3": _murmur_hash,
}
"""Handlers of this file by operator."""
