"""Scales of channels as a part of the filters before them (decision 0050).

    y = batch_norm(conv(x, w), scale, bias, mean, variance)   ->   y = conv(x, w * a, bias - mean * a)     a = scale / sqrt(variance + eps)
    y = (conv(x, w, b) + c) * d                               ->   y = conv(x, w * d, (b + c) * d)

All but x are constants with a number for each filter, so that `setup` makes the folded filters once. A convolution with
another
reader stays, and so do filters that another node reads, since both copies would be kept.

Filters that multiply subnormal numbers keep a CPU waiting, 150 cycles per product. Folded filters below the least normal
number
become 0 in `setup`; in the payloads of other constant operands of products, subnormal numbers are replaced by 0."""

from __future__ import annotations

from collections import Counter

import msgspec

from tatami.core.expr import ONE, product
from tatami.core.module import Module
from tatami.core.signature import is_constant
from tatami.core.target import Target
from tatami.core.tensor import LEAST_NORMAL, without_subnormals
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import attributes
from tatami.frontend.operations.contraction import CONTRACTION, Conv, ConvTranspose
from tatami.frontend.operations.movement import expand_dims
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.rewriting import Rewriting, Subject, has_any, rewrite_graphs

_MULTIPLIED = frozenset(op.name for op in CONTRACTION)


def fold_scales(module: Module[Graph], target: Target) -> Module[Graph]:
    """The module with the scales of its constant filters folded, and without subnormal filters. Unchanged for GPUs, which
    multiply subnormal numbers as fast as others and scale results in registers."""
    if target.kind != "cpu":
        return module
    return rewrite_graphs(module, _Folding, has_any(*_MULTIPLIED))


class _Chain(msgspec.Struct, frozen=True):
    """A convolution and the scales and shifts of its channels that follow it, each the only reader of the previous one."""

    conv: Node
    steps: tuple[Node, ...]
    axis: int
    """Axis of the channels in the result."""


class _Folding(Rewriting):
    """The folding of one graph's chains; each becomes one convolution at the place of its last step."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        graph = self.graph
        self.uses = Counter(i for n in graph.graph for i in n.inputs) + Counter(o.tensor for o in graph.signature.outputs)
        self.readers = {i: n for n in graph.graph for i in n.inputs}
        self.constant_values = self.constant_tensors()

    def constant_tensors(self) -> set[str]:
        """Names of values that `setup` can make: payloads, held inputs, and results of these alone."""
        ports = self.graph.signature.inputs
        found = {p.tensor for p in ports if p.mutability == "immutable" and is_constant(p, self.module.constants)}
        for node in self.graph.graph:
            is_known = node.op not in ("call", "if", "loop") and all(i in found for i in node.inputs if i)
            if is_known and (node.op == "constant" or any(node.inputs)):
                found.update(node.outputs)
        return found

    def result(self) -> Graph:
        chains = [c for n in self.graph.graph if n.op in ("conv", "conv_transpose") and (c := self.chain(n)) is not None]
        last = {c.steps[-1].name: c for c in chains}
        inside = {n.name for c in chains for n in (c.conv, *c.steps[:-1])}
        for node in self.graph.graph:
            self.at = node
            if node.name in last:
                self.fold(last[node.name])
            elif node.name not in inside:
                self.nodes.append(self.without_subnormals(node) if node.op in _MULTIPLIED else node)
        return self.rewritten()

    # -- what can be folded ----------------------------------------------------------------------
    def chain(self, conv: Node) -> _Chain | None:
        """A convolution with constant filters, its scales and its shifts; None if no scale follows."""
        w, kind = conv.inputs[1], self.tensors[conv.outputs[0]]
        attrs: Conv | ConvTranspose = attributes(OPS[conv.op], conv)
        is_plain = all(d in (None, kind.dtype) for d in (attrs.acc_dtype, attrs.out_dtype))
        constants = all(i in self.constant_values for i in conv.inputs[1:] if i)
        if kind.dtype not in LEAST_NORMAL or not is_plain or not constants or self.uses[w] != 1:
            return None
        if conv.op == "conv_transpose" and attrs.groups != 1:
            return None
        axis = len(kind.shape) - len(self.shape(w)) + 1
        steps: list[Node] = []
        value = conv.outputs[0]
        while self.uses[value] == 1 and value in self.readers and self.is_step(self.readers[value], value, axis):
            steps.append(self.readers[value])
            value = steps[-1].outputs[0]
        return _Chain(conv, tuple(steps), axis) if any(n.op in ("batch_norm", "mul") for n in steps) else None

    def is_step(self, node: Node, value: str, axis: int) -> bool:
        """True if `node` scales or shifts the channels of `value` by constants of its type."""
        shape = self.shape(value)
        if any(self.dtype(i) != self.dtype(value) for i in node.inputs if i):
            return False
        if node.op == "batch_norm":
            own = attributes(OPS[node.op], node).axis % len(shape)
            return node.inputs[0] == value and own == axis and all(i in self.constant_values for i in node.inputs[1:])
        if node.op not in ("mul", "add", "sub") or (node.op == "sub" and node.inputs[0] != value):
            return False
        return self.is_per_channel(_other(node, value), axis, len(shape))

    def is_per_channel(self, tensor: str, axis: int, rank: int) -> bool:
        """True if a constant has a number for each channel of a value of `rank` axes, or one for all."""
        if tensor not in self.constant_values:
            return False
        source, dims = self.source(tensor, rank)
        sizes = zip(self.shape(source), dims, strict=True)
        return all(s.as_int() is not None and (s == ONE or d == axis) for s, d in sizes)

    def source(self, tensor: str, rank: int) -> tuple[str, tuple[int, ...]]:
        """The tensor that a constant operand expands (else the operand), and for each of its axes the axis of the result."""
        made = self.producers.get(tensor)
        dims = tuple(range(rank - len(self.shape(tensor)), rank))
        if made is None or made.op != "expand":
            return tensor, dims
        own = self.shape(made.inputs[0])
        return made.inputs[0], expand_dims(attributes(OPS["expand"], made), len(own))

    # -- folding ---------------------------------------------------------------------------------
    def fold(self, chain: _Chain) -> None:
        conv, axis = chain.conv, chain.axis
        every = (o for n in (conv, *chain.steps) for o in self.origins.get(n.name, (n.name,)))
        self.origins[self.at.name] = tuple(dict.fromkeys(every))
        x, w, bias = (*conv.inputs, "")[:3]
        value, rank = conv.outputs[0], len(self.shape(conv.outputs[0]))
        scale, shift = "", bias
        for node in chain.steps:
            if node.op == "batch_norm":
                gamma, beta, mean, variance = node.inputs[1:]
                eps = self.number(attributes(OPS[node.op], node).eps, self.dtype(variance))
                factor = self.joined("mul", gamma, self.one("rsqrt", [self.joined("add", variance, eps)]))
                if shift:
                    shift = self.joined("add", self.joined("mul", self.joined("sub", shift, mean), factor), beta)
                else:
                    shift = self.joined("sub", beta, self.joined("mul", mean, factor))
            else:
                factor = self.vector(_other(node, value), axis, rank)
                if node.op == "mul":
                    shift = self.scaled(shift, factor)
                elif shift:
                    shift = self.joined(node.op, shift, factor)
                else:
                    shift = factor if node.op == "add" else self.one("neg", [factor])
            if node.op in ("batch_norm", "mul"):
                scale = self.scaled(scale, factor) or factor
            value = node.outputs[0]
        filters = self.normal(self.joined("mul", w, self.along_axis(scale, w, 0 if conv.op == "conv" else 1)))
        channels = self.shape(conv.outputs[0])[axis]
        operands = [x, filters]
        if shift:
            operands.append(self.normal(shift if self.shape(shift) else self.one("expand", [shift], {"shape": (channels,)})))
        self.add(conv.op, operands, conv.attrs, (value,))

    def scaled(self, tensor: str, factor: str) -> str:
        return self.joined("mul", tensor, factor) if tensor else ""

    def vector(self, tensor: str, axis: int, rank: int) -> str:
        """A constant operand of a step with one axis, the channels', or with rank 0."""
        source, dims = self.source(tensor, rank)
        shape = self.shape(source)
        count = product(shape)
        to = (count,) if axis in dims and shape[dims.index(axis)] == count and count != ONE else ()
        return source if to == shape else self.one("reshape", [source], {"shape": to})

    def along_axis(self, scale: str, w: str, axis: int) -> str:
        """A scale with as many axes of size 1 after the channels as filters have there, so that it multiplies filters."""
        after = len(self.shape(w)) - 1 - axis
        return self.one("unsqueeze", [scale], {"axes": tuple(range(1, 1 + after))}) if self.shape(scale) and after else scale

    def normal(self, tensor: str) -> str:
        """The tensor with 0 for subnormal numbers, computed by nodes."""
        dtype = self.dtype(tensor)
        least = self.number(LEAST_NORMAL[dtype], dtype)
        is_small = self.one("lt", [self.one("abs", [tensor]), least])
        return self.one("where", [is_small, self.number(0.0, dtype), tensor])

    def without_subnormals(self, node: Node) -> Node:
        """The node with payloads whose subnormal numbers are 0; the node itself if there are none."""
        inputs = tuple(self.normal_payload(i) for i in node.inputs)
        return node if inputs == node.inputs else msgspec.structs.replace(node, inputs=inputs)

    def normal_payload(self, tensor: str) -> str:
        known = self.module.constants.get(tensor)
        if known is None or tensor not in self.constant_values:
            return tensor
        normal = without_subnormals(known)
        return tensor if normal is known else self.constant(normal)


def _other(node: Node, value: str) -> str:
    a, b = node.inputs
    return b if a == value else a
