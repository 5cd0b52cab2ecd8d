"""Constant weights of products that are dequantised block by block: codes of 4 or 8 bits stay in memory, and are made floats
by the product.

    y = matmul(x, dequantize(w, s, z, axis=0, block=32))
    ->   y = matmul(x, (codes - zero) * scale)       codes [K, N] of i8, or eight of 4 bits in an i32 along k; zero and scale
                                                     [K/32, N], spread over k by movement

The form is that of `tiny/views/narrow_factors.py`. Codes and zero points become signed: u8 less 128, u4 less 8.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tatami.core.dtype import DType
from tatami.core.tensor import Tensor
from tatami.frontend.ir import Node
from tatami.frontend.operation import attributes
from tatami.frontend.operations.elementwise import Dequantize
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.rewriting import Rewriting

NIBBLES = 8
"""Codes of 4 bits in an element of 32 bits."""
_OFFSET = {DType.u8: 128, DType.u4: 8, DType.u2: 2, DType.i8: 0, DType.i4: 0, DType.i2: 0}
"""Value that code 0 of a signed type has as a code of the unsigned type of the same size."""
_MOVES = ("permute", "contiguous", "identity")


class _Blocks(NamedTuple):
    """Signed codes [K, N] of `bits`, and their zero points (None: all are 0) and scales [ceil(K/block), N]."""

    codes: np.ndarray
    zeros: np.ndarray | None
    scales: np.ndarray
    bits: int
    block: int


def narrow_weight(m: Rewriting, tensor: str, k_axis: int) -> str | None:
    """The matrix `tensor`, whose axis `k_axis` a product sums over, from codes in memory; None unless it is a dequantisation
    of constants whose scales are the same along k within a block."""
    node, own_axis = m.producers.get(tensor), k_axis
    while node is not None and node.op in _MOVES:
        if node.op == "permute" and tuple(node.attrs["perm"]) == (1, 0):
            own_axis = 1 - own_axis
        node = m.producers.get(node.inputs[0])
    if node is None or node.op != "dequantize" or len(m.shape(tensor)) != 2:
        return None
    found = _blocks(m, node, own_axis)
    if found is None:
        return None
    out = _value(m, found)
    return out if k_axis == 0 else m.one("permute", [out], {"perm": (1, 0)})


def _blocks(m: Rewriting, node: Node, k_axis: int) -> _Blocks | None:
    """The constants of a dequantisation, k first, if micro-kernels take them."""
    attrs = attributes(OPS["dequantize"], node)
    assert isinstance(attrs, Dequantize)
    x, scale, zero = (*node.inputs, "")[:3]
    codes, scales, zeros = (m.constants.get(t) for t in (x, scale, zero))
    if codes is None or scales is None or (zero and zeros is None) or codes.dtype not in _OFFSET:
        return None
    if attrs.to != DType.fp32 or scales.dtype != DType.fp32 or (zeros is not None and zeros.dtype != codes.dtype):
        return None
    depth, columns, block = codes.shape[k_axis], codes.shape[1 - k_axis], attrs.block
    if (block or scales.array.ndim) and (attrs.axis % 2 == k_axis) != bool(block):
        return None  # blocks along the columns, or a scale for each k
    block = block if 0 < block < depth else max(1, depth)

    def by_row(t: np.ndarray) -> np.ndarray:
        """One row for each block of k."""
        wide = t if t.ndim == 2 else np.broadcast_to(t, (1, columns))
        return np.ascontiguousarray(wide.T if t.ndim == 2 and k_axis == 1 else wide)

    offset = _OFFSET[codes.dtype]
    values = codes.array.astype(np.int16) - offset
    points = by_row((np.zeros(scales.shape, np.int16) if zeros is None else zeros.array.astype(np.int16)) - offset)
    bits = 8 if codes.dtype in (DType.i8, DType.u8) or (block % NIBBLES and block < depth) else 4
    return _Blocks(values.T if k_axis == 1 else values, points if points.any() else None, by_row(scales.array), bits, block)


def _value(m: Rewriting, b: _Blocks) -> str:
    """Nodes that compute the matrix from constants in the form of their slivers."""
    depth, columns = b.codes.shape
    if b.bits == 4:
        whole = -(-depth // NIBBLES)
        words = m.constant(Tensor(_words(b.codes)))
        half = m.one("iota", [], {"shape": (2, 1), "axis": 0, "dtype": DType.i32, "start": 28, "step": -4})
        byte = m.one("iota", [], {"shape": (1, 4), "axis": 1, "dtype": DType.i32, "step": 8})
        places = m.one("reshape", [m.joined("sub", half, byte)], {"shape": (1, NIBBLES, 1)})
        spread = [
            _spread(m, t, (whole, NIBBLES, columns), depth) for t in (m.one("unsqueeze", [words], {"axes": (1,)}), places)
        ]
        codes = m.one("shr", [m.one("shl", spread), m.number(28, DType.i32)])
    else:
        codes = m.constant(Tensor(b.codes.astype(np.int8)))
    out = m.cast(codes, DType.fp32)
    if b.zeros is not None:
        out = m.one("sub", [out, _by_blocks(m, m.cast(m.constant(Tensor(b.zeros.astype(np.int8))), DType.fp32), b)])
    return m.one("mul", [out, _by_blocks(m, m.constant(Tensor(b.scales)), b)])


def _words(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits as elements of 32 bits, filled up with 0: byte j has code j in its low half and code j + 4 in its high half,
    so that one mask leaves four neighbours of k in the bytes of an element."""
    depth, columns = codes.shape
    out = np.zeros((-(-depth // NIBBLES), columns), np.uint32)
    for i in range(NIBBLES):
        part = codes[i::NIBBLES].astype(np.uint32) & 15
        out[: len(part)] |= part << (8 * (i % 4) + i // 4 * 4)
    return out.view(np.int32)


def _by_blocks(m: Rewriting, t: str, b: _Blocks) -> str:
    """One row for each block as one for each step of k."""
    rows, (depth, columns) = m.shape(t)[0].as_int() or 0, b.codes.shape
    return _spread(m, m.one("unsqueeze", [t], {"axes": (1,)}), (rows, b.block, columns), depth)


def _spread(m: Rewriting, t: str, shape: tuple[int, int, int], depth: int) -> str:
    """[A, 1 or B, N] expanded to `shape`, as the first `depth` of A * B rows."""
    wide = m.one("expand", [t], {"shape": shape})
    rows = m.one("reshape", [wide], {"shape": (shape[0] * shape[1], shape[2])})
    if shape[0] * shape[1] == depth:
        return rows
    return m.one("slice", [rows], {"starts": (0, 0), "stops": (depth, shape[2])})
