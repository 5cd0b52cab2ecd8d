"""Constant matrices of 8-bit integers that a model scales by two operations, as one dequantisation.

    mul(cast(w, fp32), s)   ->   dequantize(w, s, axis)     w [K, N] of i8, s [1, N], [K, 1] or one number, both constants

The numbers are the same. The scale can then leave a product's sum, as that of any dequantisation (`dequantised.py`).
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.tensor import Tensor
from tatami.frontend.ir import Graph, Node
from tatami.frontend.rewrites.rewriting import Rewriting


class SpelledScales(Rewriting):
    """The rewriting of one graph."""

    def result(self) -> Graph:
        """The graph with dequantisations in the place of these multiplications."""
        for node in self.graph.graph:
            self.at = node
            made = self.scaled(node) if node.op == "mul" and self.dtype(node.outputs[0]) == DType.fp32 else None
            if made is None:
                self.nodes.append(node)
            else:
                self.add("dequantize", made[0], {"axis": made[1], "to": DType.fp32}, node.outputs)
        return self.rewritten()

    def scaled(self, node: Node) -> tuple[list[str], int] | None:
        """(operands, axis of the scale) of the dequantisation that a multiplication is; None for others."""
        for codes, scale in (node.inputs, node.inputs[::-1]):
            w, s = self.matrix(codes), self.scale(scale)
            if w is None or s is None:
                continue
            numbers = s.array
            if numbers.size == 1:
                return [w, self.constant(Tensor(numbers.reshape(())))], 1
            axis = 1 if numbers.shape[-1] == numbers.size else 0
            if numbers.size == self.shape(w)[axis].as_int() and (numbers.ndim == 2 or axis == 1):
                return [w, self.constant(Tensor(numbers.reshape(-1)))], axis
        return None

    def matrix(self, tensor: str) -> str | None:
        """The constant matrix of i8 that `tensor` is a cast of."""
        node = self.producers.get(tensor)
        if node is None or node.op != "cast" or len(self.shape(tensor)) != 2:
            return None
        (w,) = node.inputs
        return w if w in self.constants and self.dtype(w) == DType.i8 else None

    def scale(self, tensor: str) -> Tensor | None:
        """The constant that `tensor` is, perhaps expanded; None unless its numbers are finite and not 0."""
        node = self.producers.get(tensor)
        source = node.inputs[0] if node is not None and node.op == "expand" else tensor
        known = self.constants.get(source)
        if known is None or self.dtype(source) != DType.fp32 or known.array.ndim > 2:
            return None
        size = abs(known.array)
        return known if ((size > 0) & (size < float("inf"))).all() else None
