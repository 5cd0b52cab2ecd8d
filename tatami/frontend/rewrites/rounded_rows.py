"""`precision="int8"`: operands of products with narrow weights are rounded to 8 bits for each row and block, as llama.cpp and
level 4 of `MatMulNBits` do.

    y = x @ dequantize(w, s, axis=0, block=32)
    ->  t = max |x| of a row and block / 127;   q = round(x / t) in i8;   y = (q * t) @ dequantize(w, s, axis=0, block=32)

Both operands then have integers with scales, whose sums of a block are sums of integers (decision 0088). Weights are constants of
4 or 8 bits in blocks along the sum; bytes with zero points, blocks that do not divide the sum, and everything else stay as they
are.
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import expr, product
from tatami.core.module import Module
from tatami.core.numbers.codes import MOST_BLOCK, OFFSET
from tatami.core.tensor import Tensor
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import attributes
from tatami.frontend.operations.contraction import Gemm
from tatami.frontend.operations.elementwise import Dequantize
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.rewriting import Rewriting, Subject, has_any, rewrite_graphs

_PRODUCTS = ("matmul", "linear", "gemm")
_MOVES = ("permute", "contiguous", "identity")
_WIDE = (DType.i8, DType.u8)


def round_rows(module: Module[Graph]) -> Module[Graph]:
    """The module with the rows of its products with narrow weights rounded."""
    return rewrite_graphs(module, _Rounding, has_any("dequantize"))


class _Rounding(Rewriting):
    """The rewriting of one graph."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.rounded: dict[tuple[str, int], str] = {}
        """Operand and block -> the rounded operand, which all its products share."""

    def result(self) -> Graph:
        for node in self.graph.graph:
            self.at = node
            block = self.block_of(node) if node.op in _PRODUCTS else 0
            if block:
                x, *rest = node.inputs
                if (x, block) not in self.rounded:
                    self.rounded[x, block] = self.rounded_blocks(x, block)
                self.add(node.op, [self.rounded[x, block], *rest], node.attrs, node.outputs)
            else:
                self.nodes.append(node)
        return self.rewritten() if self.rounded else self.graph

    def block_of(self, node: Node) -> int:
        """Elements of a block of the product's weights; 0 for a product whose rows are not rounded."""
        attrs = attributes(OPS[node.op], node)
        if self.dtype(node.inputs[0]) != DType.fp32 or (isinstance(attrs, Gemm) and attrs.trans_a):
            return 0
        along = 1 if node.op == "linear" or (isinstance(attrs, Gemm) and attrs.trans_b) else 0
        made = self.producers.get(node.inputs[1])
        while made is not None and made.op in _MOVES:
            if made.op == "permute" and tuple(p % 2 for p in made.attrs["perm"]) == (1, 0):
                along = 1 - along
            made = self.producers.get(made.inputs[0])
        if made is None or made.op != "dequantize":
            return 0
        how = attributes(OPS["dequantize"], made)
        assert isinstance(how, Dequantize)
        codes, scale, zero = (self.constants.get(t) for t in (*made.inputs, "")[:3])
        if codes is None or scale is None or codes.dtype not in OFFSET or len(codes.shape) != 2 or how.axis % 2 != along:
            return 0
        depth, block = codes.shape[along], how.block
        is_odd = codes.dtype in _WIDE and _has_zeros(codes.dtype, zero)
        if how.to != DType.fp32 or scale.dtype != DType.fp32 or is_odd or codes.dtype in (DType.i2, DType.u2):
            return 0
        return block if 0 < block <= MOST_BLOCK and block < depth and depth % block == 0 and block % 8 == 0 else 0

    def rounded_blocks(self, x: str, block: int) -> str:
        """[.., K] rounded to integers of 8 bits with a scale for each row and block of k: its greatest magnitude is 127."""
        *lead, depth = self.shape(x)
        rows = product(lead)
        count = (depth.as_int() or 0) // block
        blocks = self.one("reshape", [x], {"shape": (rows, expr(count), expr(block))})
        greatest = self.one("reduce_max", [self.one("abs", [blocks])], {"axes": (2,)})
        scale = self.joined("mul", greatest, self.number(1 / 127, DType.fp32))
        is_some = self.joined("ne", scale, self.number(0.0, DType.fp32))
        divisor = self.one("unsqueeze", [self.joined("where", is_some, scale, self.number(1.0, DType.fp32))], {"axes": (2,)})
        codes = self.one("clamp", [self.one("round", [self.joined("div", blocks, divisor)])], {"lo": -127.0, "hi": 127.0})
        codes = self.one("reshape", [self.cast(codes, DType.i8)], {"shape": (rows, depth)})
        wide = self.one("expand", [self.one("unsqueeze", [scale], {"axes": (2,)})], {"shape": (rows, expr(count), expr(block))})
        wide = self.one("reshape", [wide], {"shape": (rows, depth)})
        out = self.one("mul", [self.cast(codes, DType.fp32), wide])
        return out if len(lead) == 1 else self.one("reshape", [out], {"shape": (*lead, depth)})


def _has_zeros(dtype: DType, zero: Tensor | None) -> bool:
    """True if codes as signed numbers have zero points."""
    if zero is None:
        return OFFSET[dtype] != 0
    with zero.borrowed() as array:
        return bool((array.astype("i2") != OFFSET[dtype]).any())
