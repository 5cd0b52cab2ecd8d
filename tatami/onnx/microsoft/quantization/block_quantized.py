"""Weights of 2, 4 or 8 bits with a scale per block: MatMulNBits, MatMulBnb4, GatherBlockQuantized."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import ceildiv, expr, product
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value

FP4 = (0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""Magnitudes of bitsandbytes' FP4 by the low three bits; bit 3 is the sign."""
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Values of NF4 (Dettmers et al., "QLoRA", 2023, appendix E)."""


def unpacked(x: Num, bits: int, *, high_first: bool = False) -> Num:
    """Bytes as numbers of `bits` each, along the last axis, low bits first unless `high_first`."""
    if bits == 8:
        return x
    count = 8 // bits
    parts = [
        x.fn("shr", i * bits).fn("bitand", (1 << bits) - 1) if i else x.fn("bitand", (1 << bits) - 1) for i in range(count)
    ]
    if high_first:
        parts.reverse()
    stacked = Num(x.m, x.m.one("stack", [p.tensor for p in parts], {"axis": len(x.shape)}))
    return stacked.reshape(*x.shape[:-1], x.shape[-1] * count)


def per_element(scale: Num, axis: int, block: int, size: int) -> Num:
    """One number per block along an axis as one per element of the `size` elements."""
    shape = scale.shape
    wide = scale.unsqueeze(axis + 1).fn("expand", shape=(*shape[: axis + 1], block, *shape[axis + 1 :]))
    wide = wide.reshape(*shape[:axis], shape[axis] * block, *shape[axis + 1 :])
    return wide if wide.shape[axis] == expr(size) else wide.part(axis, 0, size)


def weights_of_bits(m: Importer, n: OnnxNode, bits: int) -> Num:
    """[N, K] weights of MatMulNBits: (packed - zero point) * scale in the dtype of the scales. A zero point is packed like the
    weights, or a float; 2^(bits - 1) by default. `g_idx` gives the block of each k."""
    rows, depth, block = (n.attr(a) for a in ("N", "K", "block_size"))
    blocks = -(-depth // block)
    packed, scales = Num(m, m.operand(n, 1)), Num(m, m.operand(n, 2)).reshape(rows, blocks)
    to = scales.dtype
    values = unpacked(packed.reshape(rows, blocks * (block * bits // 8)), bits).part(1, 0, depth).cast(to)
    if n.has(3):
        zero = Num(m, m.operand(n, 3))
        if zero.dtype == DType.u8:
            zero = unpacked(zero.reshape(rows, -(-blocks * bits // 8)), bits).part(1, 0, blocks)
        zero = zero.cast(to).reshape(rows, blocks)
    else:
        zero = Num(m, m.one("full", [], {"shape": (rows, blocks), "value": float(1 << (bits - 1)), "dtype": to}))
    if n.has(4):
        group = m.operand(n, 4)
        scales, zero = (Num(m, m.one("take", [t.tensor, group], {"axis": 1})).part(1, 0, depth) for t in (scales, zero))
    else:
        scales, zero = (per_element(t, 1, block, depth) for t in (scales, zero))
    return (values - zero) * scales


def constant_weights(m: Importer, n: OnnxNode, bits: int) -> str | None:
    """[N, K] weights of MatMulNBits as a dequantisation of constants of `bits` each; None for weights that are not constants,
    for zero points that are floats, and for `g_idx`."""
    rows, depth, block = (n.attr(a) for a in ("N", "K", "block_size"))
    blocks, kind = -(-depth // block), {2: DType.u2, 4: DType.u4, 8: DType.u8}[bits]
    packed, scales, zero = (m.constants.get(m.operand(n, k)) for k in (1, 2, 3))
    if packed is None or scales is None or n.has(4) or not m.dtype(m.operand(n, 0)) == scales.dtype == DType.fp32:
        return None
    if n.has(3) and (zero is None or zero.dtype != DType.u8):
        return None

    def codes(array: np.ndarray, count: int) -> np.ndarray:
        """`count` codes in each row of bytes, low bits first."""
        parts = [array >> i & (1 << bits) - 1 for i in range(0, 8, bits)]
        return np.stack(parts, -1).reshape(rows, -1)[:, :count].astype(numpy_dtype(kind))

    points = np.full((rows, blocks), 1 << bits - 1, np.uint8).astype(numpy_dtype(kind))
    if zero is not None:
        points = codes(zero.array.reshape(rows, -1), blocks)
    constants = (codes(packed.array.reshape(rows, -1), depth), scales.array.reshape(rows, blocks), points)
    return m.one("dequantize", [m.add_constant(t) for t in constants], {"to": DType.fp32, "axis": 1, "block": block})


def rounded_blocks(x: Num, depth: int, block: int) -> Num:
    """[M, K] rounded to integers of 8 bits with a scale for each row and block of k: its greatest magnitude is 127."""
    m, rows = x.m, x.shape[0]
    blocks = x.reshape(rows, depth // block, block)
    scale = Num(m, m.one("reduce_max", [blocks.fn("abs").tensor], {"axes": (2,)})) * (1 / 127)
    codes = (
        (blocks / scale.fn("ne", 0).where(scale, 1).unsqueeze(2)).fn("round").fn("clamp", lo=-127.0, hi=127.0).cast(DType.i8)
    )
    return codes.reshape(rows, depth).cast(DType.fp32) * per_element(scale, 1, block, depth)


def _in_eight_bits(m: Importer, n: OnnxNode, a: str, weights: str) -> str | None:
    """The product with operand `a` rounded as `accuracy_level` 4 permits (`rounded_blocks`); None where that gains nothing: other
    levels, 2 bits, bytes with zero points, blocks that do not divide k."""
    depth, block, bits = n.attr("K"), n.attr("block_size"), n.attr("bits", 4)
    if n.attr("accuracy_level", 0) != 4 or bits not in (4, 8) or depth % block or depth == block:
        return None
    if bits == 8 and n.has(3) and (m.constants[m.operand(n, 3)].array != 128).any():
        return None
    lead = m.shape(a)[:-1]
    rounded = rounded_blocks(Num(m, a).reshape(product(lead), depth), depth, block)
    return m.one("reshape", [m.one("linear", [rounded.tensor, weights])], {"shape": (*lead, expr(n.attr("N")))})


def _matmul_bits(m: Importer, n: OnnxNode) -> list[Value]:
    """MatMulNBits. `accuracy_level` is a lower bound: at level 4 the operand may be rounded to 8 bits for each row and block, as
    it is for weights of 4 and 8 bits; all else is computed in the operand's own dtype, which exceeds every level."""
    bits = n.attr("bits", 4)
    if bits not in (2, 4, 8) or n.attr("weight_prepacked", 0):
        raise unsupported(
            m, f"MatMulNBits of {bits} bits or packed for one machine", "quantise to 2, 4 or 8 bits, not prepacked"
        )
    a, bias = m.operand(n, 0), m.operand(n, 5)
    if any(size == 0 for size in m.shape(m.operand(n, 1))):  # an omitted projection
        out = m.one("full", [], {"shape": (*m.shape(a)[:-1], expr(n.attr("N"))), "value": 0, "dtype": m.dtype(a)})
        return [m.result(m.joined("add", out, bias) if bias else out)]
    narrow = constant_weights(m, n, bits)
    rounded = None if narrow is None else _in_eight_bits(m, n, a, narrow)
    if rounded is not None:
        return [m.result(m.joined("add", rounded, bias) if bias else rounded)]
    weights = narrow or weights_of_bits(m, n, bits).cast(m.dtype(a)).tensor
    return [m.result(m.one("linear", [a, weights, *([bias] if bias else [])]))]


def _matmul_bnb4(m: Importer, n: OnnxNode) -> list[Value]:
    """MatMulBnb4: four bits are an index into the values of FP4 or NF4, times the largest magnitude of the block; the high
    bits of a byte come first."""
    rows, depth, block = (n.attr(a) for a in ("N", "K", "block_size"))
    a, packed, largest = m.operand(n, 0), Num(m, m.operand(n, 1)), Num(m, m.operand(n, 2))
    table = np.array(NF4 if n.attr("quant_type") == 1 else (*FP4, *(-v for v in FP4)), np.float32)
    codes = unpacked(packed, 4, high_first=True).part(0, 0, rows * depth).cast(DType.i64)
    values = Num(m, m.one("take", [m.add_constant(table), codes.tensor], {"axis": 0})).cast(largest.dtype)
    weights = (values * per_element(largest, 0, block, rows * depth)).reshape(rows, depth).cast(m.dtype(a))
    return [m.result(m.one("linear" if n.attr("transB", 1) else "matmul", [a, weights.tensor]))]


def _gather_blocks(m: Importer, n: OnnxNode) -> list[Value]:
    """GatherBlockQuantized: rows of a quantised table, dequantised after they are read: (data - zero point) * scale of the
    block. A row beyond the table is 0."""
    data, scales = Num(m, m.operand(n, 0)), Num(m, m.operand(n, 2))
    zero = Num(m, m.operand(n, 3)) if n.has(3) else None
    rank = len(data.shape)
    along, across = n.attr("gather_axis", 0) % rank, n.attr("quantize_axis", 1) % rank
    bits = n.attr("bits", 4) if data.dtype == DType.u8 else 8
    if data.dtype == DType.u8 and (along != 0 or across == 0):
        raise unsupported(
            m, "GatherBlockQuantized of bytes along another axis than 0", "gather along axis 0, quantise along another"
        )
    whole = data.shape[across].as_int()
    if whole is None:
        raise unsupported(m, "GatherBlockQuantized of a table of open size", "give the table as an initialiser")
    whole = whole * (8 // bits) if across == rank - 1 else whole
    block = n.attr("block_size", 128) or whole
    index = Num(m, m.operand(n, 1)).cast(DType.i64)
    size = size_of(m, data.shape[along], DType.i64)
    index = index.fn("lt", 0).where(index + size, index)
    blocks = index.fn("idiv", block) if along == across else index

    def rows(t: Num, place: Num) -> Num:
        place = place * 0 if t.shape[along] == 1 and data.shape[along] != 1 else place
        return Num(m, m.one("take", [t.tensor, place.tensor], {"axis": along, "bounds": "clamp"}))

    def spread(t: Num) -> Num:
        """One number per element from one per block; unchanged if the block itself was looked up."""
        if along == across:
            return t
        return per_element(t, across + (len(index.shape) - 1 if along < across else 0), block, whole)

    to = scales.dtype
    values = unpacked(rows(data, index), bits).cast(DType.fp32 if data.dtype.is_float else DType.i32)
    if zero is not None:
        point = unpacked(zero, bits)
        count = ceildiv(expr(whole), expr(block))
        point = point.part(across, 0, count) if point.shape[across] != count else point
        values = values - spread(rows(point, blocks)).cast(DType.i32)
    elif data.dtype == DType.u8:
        values = values - (1 << (bits - 1))
    out = values.cast(to) * spread(rows(scales, blocks))
    inside = index.fn("ge", 0).fn("and", index.fn("lt", size))
    inside = inside.unsqueeze(*range(len(index.shape), len(index.shape) + rank - 1 - along))
    return [m.result(inside.where(out, 0).tensor)]


BLOCK_QUANTIZED: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "MatMulNBits": _matmul_bits,
    "MatMulBnb4": _matmul_bnb4,
    "GatherBlockQuantized": _gather_blocks,
}
"""Handlers of this file by operator."""
