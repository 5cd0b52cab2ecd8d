"""The model with quantised layers, in ONNX's operators.

int8, int4    w -> DequantizeLinear(codes, scales)                                    weights alone
MatMulNBits   MatMul(x, w) -> MatMulNBits(x, codes, scales)                           the same as one operator
static        x -> DequantizeLinear(QuantizeLinear(x)), weights as above              the form that runtimes call QDQ
dynamic       MatMul(x, w) -> MatMulInteger(DynamicQuantizeLinear(x), codes) * scales
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from tatami.core.diagnostic import fail
from tatami.quantization.layers import Layer
from tatami.quantization.ranges import Range
from tatami.quantization.rounding import Affine, Codes, affine, rounded
from tatami.quantization.settings import Settings

OPSET, BLOCKED_OPSET, BLOCKED_IR = 13, 21, 10
"""Least version of ONNX's operators for scales per column; for blocks and 4 bits; and the file's version for these."""
MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
_INTEGERS = 2**31 - 1


def rewritten(
    model: onnx.ModelProto, layers: Sequence[Layer], settings: Settings, ranges: Mapping[str, Range]
) -> onnx.ModelProto:
    """The model with these layers quantised. `ranges`: of the left operands, for static activations."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _Rewriting(made.graph, {id_of(layer.node): layer for layer in layers}, settings, ranges).run()
    if settings.form == "MatMulNBits":
        _import(made, MICROSOFT, 1)
    return made


def with_opset(model: onnx.ModelProto, settings: Settings) -> onnx.ModelProto:
    """The model in a version of ONNX's operators that has what the settings need. Raises UnsupportedModel."""
    is_blocked = settings.form == "qdq" and (settings.bits == 4 or settings.block_size > 0)
    least = BLOCKED_OPSET if is_blocked else OPSET
    found = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), least)
    if found < least:
        try:
            model = onnx.version_converter.convert_version(model, least)
        except Exception as error:  # the converter raises what it likes
            why = f"it has version {found} of ONNX's operators, blocks and 4 bits need {least}, and onnx cannot convert it: {error}"
            raise fail("UnsupportedModel", "model", why[:300], 'export it again, or take the form "MatMulNBits"') from None
    if not is_blocked or model.ir_version >= BLOCKED_IR:
        return model
    made = onnx.ModelProto()  # the caller's own stays as it is
    made.CopyFrom(model)
    made.ir_version = BLOCKED_IR
    return made


def id_of(node: onnx.NodeProto) -> str:
    """The name of a node's result: no other node has it."""
    return str(node.output[0])


def _import(model: onnx.ModelProto, domain: str, version: int) -> None:
    if all(o.domain != domain for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(domain, version))


class _Rewriting:
    """The rewriting of one graph, whose layers are known by the names of their results."""

    def __init__(
        self, graph: onnx.GraphProto, layers: Mapping[str, Layer], settings: Settings, ranges: Mapping[str, Range]
    ) -> None:
        self.graph, self.layers, self.settings, self.ranges = graph, layers, settings, ranges
        self.nodes: list[onnx.NodeProto] = []
        self.taken = set(_names(graph))
        self.codes: dict[tuple[str, bool], Codes] = {}
        self.shared: dict[tuple[str, str], str] = {}
        """(what, tensor) -> name of what was made of the tensor, for all layers that read it."""
        replaceable = {i.name for i in graph.input}
        self.held = {t.name: t for t in graph.initializer if t.name not in replaceable}
        """Constants that no caller can replace."""

    def run(self) -> None:
        for node in list(self.graph.node):
            layer = self.layers.get(id_of(node)) if node.output else None
            if layer is None:
                self.nodes.append(node)
            elif self.settings.form == "MatMulNBits":
                self.whole(node, layer)
            elif self.settings.activations == "dynamic":
                self.dynamic(node, layer)
            else:
                self.marked(node, layer)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        self.remove_unread()

    # -- making nodes ----------------------------------------------------------------------------
    def fresh(self, stem: str) -> str:
        """A name that nothing in the graph has."""
        name, k = stem, 0
        while name in self.taken:
            k += 1
            name = f"{stem}_{k}"
        self.taken.add(name)
        return name

    def constant(self, stem: str, array: np.ndarray) -> str:
        name = self.fresh(stem)
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attributes: int) -> str:
        """Add a node; the name of its first result."""
        outputs = outputs or (self.fresh(f"{inputs[0]}_{op}"),)
        name = self.fresh(f"{outputs[0]}_{op}")
        domain = MICROSOFT if op == "MatMulNBits" else ""
        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), name, domain=domain, **attributes))
        return outputs[0]

    def weight(self, layer: Layer, part: str, array: np.ndarray) -> str:
        """A part of a layer's weights as a constant, for all layers that read them in the same order."""
        key = (f"{part} {layer.turned}", layer.weight)
        if key not in self.shared:
            self.shared[key] = self.constant(f"{layer.weight}_{part}", array)
        return self.shared[key]

    def codes_of(self, layer: Layer) -> Codes:
        """The codes of a layer's weights; filters have one scale each."""
        key = (layer.weight, layer.turned)
        if key not in self.codes:
            block = 0 if layer.op == "Conv" else self.settings.block_size
            self.codes[key] = rounded(layer.matrix, self.settings.bits, block)
        return self.codes[key]

    # -- the forms -------------------------------------------------------------------------------
    def marked(self, node: onnx.NodeProto, layer: Layer) -> None:
        """The layer with operands that are dequantised."""
        found = self.codes_of(layer)
        if self.settings.activations == "static":
            codes = affine(*self.ranges[layer.source])
            node.input[0] = self.rounded_source(layer.source, codes)
            self.round_bias(node, layer, codes, found)
        node.input[1] = self.dequantised(layer, found)
        self.nodes.append(node)

    def dequantised(self, layer: Layer, found: Codes) -> str:
        """The weights from their codes, in their own shape."""
        key = (f"weight {layer.turned}", layer.weight)
        if key not in self.shared:
            codes, scales = (a.T if layer.turned else a for a in (found.codes, found.scales))
            codes = codes.reshape(layer.shape).astype(ml_dtypes.int4 if self.settings.bits == 4 else np.int8)
            column = 0 if layer.turned else 1
            if len(found.scales) == 1:
                marks = {"axis": column}
                scales = scales.reshape(-1)
            else:
                marks = {"axis": 1 - column, "block_size": found.block}
            operands = (self.constant(f"{layer.weight}_codes", codes), self.constant(f"{layer.weight}_scales", scales))
            self.shared[key] = self.add("DequantizeLinear", operands, (self.fresh(f"{layer.weight}_values"),), **marks)
        return self.shared[key]

    def rounded_source(self, name: str, codes: Affine) -> str:
        """A tensor rounded to the codes of its range."""
        key = ("rounded", name)
        if key not in self.shared:
            marks = (self.constant(f"{name}_scale", np.array(codes.scale)), self.constant(f"{name}_zero", np.array(codes.zero)))
            made = self.add("QuantizeLinear", (name, *marks), (self.fresh(f"{name}_codes"),))
            self.shared[key] = self.add("DequantizeLinear", (made, *marks), (self.fresh(f"{name}_rounded"),))
        return self.shared[key]

    def round_bias(self, node: onnx.NodeProto, layer: Layer, codes: Affine, found: Codes) -> None:
        """A constant bias in the scale of the sums, which runtimes add to these. It stays if it has another shape, or if it does
        not fit integers of that scale."""
        bias = self.held.get(node.input[2]) if len(node.input) > 2 else None
        factors = [a.f for a in node.attribute if a.name in ("alpha", "beta")]
        if bias is None or bias.data_type != onnx.TensorProto.FLOAT or any(f != 1 for f in factors):
            return
        values, scales = numpy_helper.to_array(bias), codes.scale * found.scales[0]
        if values.shape != scales.shape:
            return
        sums = np.rint(values / scales.astype(np.float64))
        if np.isfinite(sums).all() and np.abs(sums).max(initial=0) <= _INTEGERS:
            parts = (self.constant(f"{bias.name}_codes", sums.astype(np.int32)), self.constant(f"{bias.name}_scales", scales))
            node.input[2] = self.add("DequantizeLinear", parts, (self.fresh(f"{bias.name}_values"),), axis=0)

    def dynamic(self, node: onnx.NodeProto, layer: Layer) -> None:
        """The product as a sum of integers, whose left operand is rounded by its range in each call."""
        found, source = self.codes_of(layer), layer.source
        key = ("dynamic", source)
        if key not in self.shared:
            parts = [self.fresh(f"{source}_{part}") for part in ("codes", "scale", "zero")]
            self.shared[key] = self.add("DynamicQuantizeLinear", (source,), parts)
        codes = self.shared[key]
        scale, zero = next((n.output[1], n.output[2]) for n in reversed(self.nodes) if n.output[:1] == [codes])
        sums = self.add("MatMulInteger", (codes, self.weight(layer, "codes", found.codes), zero))
        wide = self.add("Cast", (sums,), to=onnx.TensorProto.FLOAT)
        both = self.add("Mul", (scale, self.weight(layer, "scales", found.scales[0])))
        self.finished("Mul", (wide, both), node)

    def whole(self, node: onnx.NodeProto, layer: Layer) -> None:
        """The product as MatMulNBits: codes from 0 on, [N, blocks, bytes of a block]."""
        found, bits = self.codes_of(layer), self.settings.bits
        depth, columns = found.codes.shape
        size = self.settings.block_size
        count = -(-depth // size)
        middle = 1 << (bits - 1)
        codes = np.full((count * size, columns), middle, np.uint8)
        codes[:depth] = (found.codes.astype(np.int16) + middle).astype(np.uint8)
        packed = codes.T.reshape(columns, count, size)
        if bits == 4:
            packed = packed[..., ::2] | packed[..., 1::2] << 4
        operands = (
            layer.source,
            self.weight(layer, "codes", packed),
            self.weight(layer, "scales", found.scales.T.reshape(-1)),
        )
        numbers = {"K": depth, "N": columns, "bits": bits, "block_size": size, "accuracy_level": self.settings.accuracy_level}
        self.finished("MatMulNBits", operands, node, **numbers)

    def finished(self, op: str, operands: Sequence[str], node: onnx.NodeProto, **attributes: int) -> None:
        """Add the operation that takes the place of a product, and its bias."""
        bias = [i for i in node.input[2:] if i]
        if bias:
            self.add("Add", (self.add(op, operands, (), **attributes), bias[0]), (node.output[0],))
        else:
            self.add(op, operands, (node.output[0],), **attributes)

    def remove_unread(self) -> None:
        """Remove weights in whose place codes are read."""
        old = {layer.weight for layer in self.layers.values()} | set(self.held)
        used = set(_read(self.graph))
        kept = [t for t in self.graph.initializer if t.name in used or t.name not in old]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        nodes = [n for n in self.graph.node if not (n.op_type == "Constant" and n.output[0] in old - used)]
        del self.graph.node[:]
        self.graph.node.extend(nodes)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and all that its nodes hold."""
    yield graph
    for node in graph.node:
        for a in node.attribute:
            for inner in [a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs:
                yield from _graphs(inner)


def _read(graph: onnx.GraphProto) -> Iterator[str]:
    for g in _graphs(graph):
        yield from (i for n in g.node for i in n.input)
        yield from (o.name for o in g.output)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from _read(graph)
    for g in _graphs(graph):
        yield from (o for n in g.node for o in n.output)
        yield from (n.name for n in g.node)
        yield from (i.name for i in g.input)
        yield from (t.name for t in g.initializer)
        yield from (v.name for v in g.value_info)
