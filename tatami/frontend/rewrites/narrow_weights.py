"""Constant weights of products that are dequantised block by block: codes of 4 or 8 bits stay in memory, and are made floats
by the product.

    y = matmul(x, dequantize(w, s, z, axis=0, block=32))
    ->   y = matmul(x, (codes - zero) * scale)       codes [K, N] of i8, or eight of 4 bits in an i32 along k; zero and scale
                                                     [K/32, N], spread over k by movement

The form is that of `tiny/views/narrow_factors.py`. Codes and zero points become signed: u8 less 128, u4 less 8.
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr
from tatami.core.numbers.codes import OFFSET, Blocks, blocks_of
from tatami.core.numbers.words import NIBBLES
from tatami.frontend.ir import Node
from tatami.frontend.operation import attributes
from tatami.frontend.operations.elementwise import Dequantize
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.rewriting import Rewriting

_MOVES = ("permute", "contiguous", "identity")


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


def _blocks(m: Rewriting, node: Node, k_axis: int) -> Blocks | None:
    """The constants of a dequantisation, k first, if micro-kernels take them."""
    attrs = attributes(OPS["dequantize"], node)
    assert isinstance(attrs, Dequantize)
    x, scale, zero = (*node.inputs, "")[:3]
    codes, scales, zeros = (m.constants.get(t) for t in (x, scale, zero))
    if codes is None or scales is None or (zero and zeros is None) or codes.dtype not in OFFSET or 0 in codes.shape:
        return None
    if attrs.to != DType.fp32 or scales.dtype != DType.fp32 or (zeros is not None and zeros.dtype != codes.dtype):
        return None
    if (attrs.block or scales.shape) and (attrs.axis % 2 == k_axis) != bool(attrs.block):
        return None  # blocks along the columns, or a scale for each k
    return blocks_of(codes, scales, zeros, k_axis, attrs.block)


def _value(m: Rewriting, b: Blocks) -> str:
    """Nodes that compute the matrix from constants in the form of their slivers."""
    codes = m.constant(b.codes)
    out = m.cast(codes_of_words(m, codes, b.depth) if b.has_nibbles else codes, DType.fp32)
    if b.zeros is not None:
        out = m.one("sub", [out, _by_blocks(m, m.cast(m.constant(b.zeros), DType.fp32), b)])
    return m.one("mul", [out, _by_blocks(m, m.constant(b.scales), b)])


def codes_of_words(m: Rewriting, words: str, depth: int) -> str:
    """The codes [depth, ..] in elements of 32 bits [ceil(depth / 8), ..], as integers of 32 bits."""
    count, *rest = m.shape(words)
    half = m.one("iota", [], {"shape": (2, 1), "axis": 0, "dtype": DType.i32, "start": 28, "step": -4})
    byte = m.one("iota", [], {"shape": (1, 4), "axis": 1, "dtype": DType.i32, "step": 8})
    places = m.one("reshape", [m.joined("sub", half, byte)], {"shape": (1, NIBBLES, *(1 for _ in rest))})
    shape = (count, expr(NIBBLES), *rest)
    apart = [_spread(m, t, shape, depth) for t in (m.one("unsqueeze", [words], {"axes": (1,)}), places)]
    return m.one("shr", [m.one("shl", apart), m.number(28, DType.i32)])


def _by_blocks(m: Rewriting, t: str, b: Blocks) -> str:
    """One row for each block as one for each step of k."""
    rows, columns = b.scales.shape
    return _spread(m, m.one("unsqueeze", [t], {"axes": (1,)}), (expr(rows), expr(b.block), expr(columns)), b.depth)


def _spread(m: Rewriting, t: str, shape: Shape, depth: int) -> str:
    """[A, 1 or B, ..] expanded to `shape`, as the first `depth` of A * B rows."""
    wide = m.one("expand", [t], {"shape": shape})
    count, *rest = shape[0] * shape[1], *shape[2:]
    rows = m.one("reshape", [wide], {"shape": (count, *rest)})
    if count == expr(depth):
        return rows
    starts = (0,) * (1 + len(rest))
    return m.one("slice", [rows], {"starts": starts, "stops": (expr(depth), *rest)})
