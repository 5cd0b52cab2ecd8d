"""One ONNX node into the graph: by its handler, or by the body of its function, the model's own or ONNX's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.tensor import dtype_of
from tatami.onnx.files.order import words_of
from tatami.onnx.files.schemas import DEFAULT
from tatami.onnx.importer import FROM_ONNX, Importer
from tatami.onnx.microsoft.images.blocked import DOMAIN as BLOCKED_DOMAIN
from tatami.onnx.microsoft.images.blocked import block_of
from tatami.onnx.node import OnnxNode, read_node
from tatami.onnx.nodes.fault import told_as_fault
from tatami.onnx.nodes.fold import fold
from tatami.onnx.nodes.old_forms import modern
from tatami.onnx.nodes.preconditions import check_operands
from tatami.onnx.registry import CONTROL, handler_of
from tatami.onnx.strings.text_rules import text_results
from tatami.onnx.support import schema_of, unsupported_words
from tatami.onnx.values import Value

MAX_DEPTH = 30
"""Maximum number of functions inside functions; ONNX's checker does not refuse recursion."""
_TO_ONNX = {ours: code for code, ours in FROM_ONNX.items()}


def import_node(m: Importer, proto: onnx.NodeProto, position: int) -> None:
    """Import one node; its results become values of `m`. Raises TatamiError naming the node."""
    outer = m.site
    if not m.depth:
        m.site = words_of(proto, position)
    node = read_node(proto, m.array)
    with told_as_fault(m, node.op):
        results = _results(m, node, proto)
    m.site = outer
    ports = _ports(m, node)
    for name, value in zip(node.outputs, results, strict=False):
        if name:
            _with_dtype(m, node, value)
            value.ports = value.ports or (frozenset() if value.is_text else ports)
            m.values[name] = value


def _with_dtype(m: Importer, node: OnnxNode, result: Value) -> None:
    """Give sizes the dtype of the node's result: i64 from Shape and Size, the node's own from Cast."""
    if result.sizes is None or not node.inputs or node.op in ("Shape", "Size", "Cast", "CastLike"):
        return
    source = m.value(node.inputs[1 if node.op == "Where" else 0])
    if source.sizes is not None:
        result.dtype = source.dtype
    elif source.array is not None and dtype_of(source.array) == DType.i32:
        result.dtype = DType.i32


def _ports(m: Importer, node: OnnxNode) -> frozenset[str]:
    """The small inputs that decide all operands that are not constant; empty if anything else decides one too."""
    out: set[str] = set()
    for name in node.inputs:
        value = m.value(name) if name else None
        if value is None or value.array is not None or value.sizes is not None or value.absent:
            continue
        if not value.ports:
            return frozenset()
        out |= value.ports
    return frozenset(out)


def import_nodes(m: Importer, nodes: Iterable[onnx.NodeProto]) -> None:
    """Import nodes in order. Raises TatamiError naming the node."""
    nodes = list(nodes)
    if any(node.domain == BLOCKED_DOMAIN for node in nodes):
        inherited = m.parent.channel_block if m.parent is not None else 0
        m.channel_block = inherited or block_of(nodes, lambda name: m.known(m.value(name)))
    for position, proto in enumerate(nodes):
        import_node(m, proto, position)


def _results(m: Importer, node: OnnxNode, proto: onnx.NodeProto) -> list[Value]:
    own = m.functions.get((node.domain, node.op))
    if own is not None:
        return expand(m, node, proto, own)
    if node.domain in ("", "ai.onnx") and node.op in CONTROL:
        if any(m.value(i).is_text for i in node.inputs if i):
            raise fail("UnsupportedModel", m.site, f"{node.op} over strings", "move what computes with strings out of it")
        return CONTROL[node.op](m, node)
    handler = handler_of(node.domain, node.op)
    if handler is not None:
        if node.domain in DEFAULT:
            node = modern(m, node)
            check_operands(m, node)
        words = text_results(m, node, handler)
        if words is not None:
            return words
        folded = fold(m, node, handler)
        results = folded if folded is not None else handler(m, node)
        if results is not None:
            return results
    body = _function_of(m, node, proto)
    if body is None:
        raise fail("UnsupportedModel", m.site, *unsupported_words(m, node.domain, node.op))
    return expand(m, node, proto, body)


def expand(m: Importer, node: OnnxNode, proto: onnx.NodeProto, body: onnx.FunctionProto) -> list[Value]:
    """Results of a function call: the nodes of its body in place."""
    if m.depth >= MAX_DEPTH:
        raise fail("RecursionDepth", m.site, f"functions call each other more than {MAX_DEPTH} deep", "end the recursion")
    given = {a.name: a for a in proto.attribute}
    defaults = {a.name: a for a in body.attribute_proto}
    schema = schema_of(node.domain, node.op, m.opset)
    for name, attribute in schema.attributes.items() if schema is not None else ():
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            defaults.setdefault(name, attribute.default_value)
    inner: dict[str, Value] = {}
    for position, formal in enumerate(body.input):
        inner[formal] = m.value(node.inputs[position]) if node.has(position) else Value(absent=True)
    absent = {name for name, value in inner.items() if value.absent}
    values, opset = m.values, m.opset
    parent, m.parent = m.parent, None
    m.values = inner
    m.opset = next((o.version for o in body.opset_import if o.domain in ("", "ai.onnx")), opset)
    m.depth += 1
    try:
        for position, inside in enumerate(body.node):
            import_node(m, _with_attributes(inside, {**defaults, **given}, absent), position)
        results = [m.value(name) if name in m.values else Value(absent=True) for name in body.output]
    finally:
        m.depth -= 1
        m.values, m.opset, m.parent = values, opset, parent
    return results


def _with_attributes(proto: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto], absent: set[str]) -> onnx.NodeProto:
    """The node with the caller's attributes for references, in its subgraphs too; absent operands are empty."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    stack = [copy]
    while stack:
        node = stack.pop()
        for i, name in enumerate(node.input):
            if name in absent and node.op_type != "OptionalHasElement":
                node.input[i] = ""
        kept = []
        for a in node.attribute:
            if a.ref_attr_name:
                if a.ref_attr_name not in given:
                    continue
                resolved = onnx.AttributeProto()
                resolved.CopyFrom(given[a.ref_attr_name])
                resolved.name = a.name
                kept.append(resolved)
            else:
                kept.append(a)
        kept = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
        del node.attribute[:]
        node.attribute.extend(kept)
        for a in node.attribute:
            stack += list(a.g.node) if a.type == onnx.AttributeProto.GRAPH else []
    return copy


def _function_of(m: Importer, node: OnnxNode, proto: onnx.NodeProto) -> onnx.FunctionProto | None:
    """ONNX's own function body of the operator, or None."""
    schema = schema_of(node.domain, node.op, m.opset)
    if schema is None:
        return None
    data = b""
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= m.opset] or schema.function_opset_versions[:1]
        data = schema.get_function_with_opset_version(max(versions))
    elif schema.has_context_dependent_function:
        every = schema.context_dependent_function_opset_versions
        versions = [v for v in every if v <= m.opset] or every[:1]
        types = [_type_proto(m, node, i) for i in range(len(node.inputs))]
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                max(versions), proto.SerializeToString(), [t.SerializeToString() for t in types]
            )
        except (RuntimeError, ValueError):
            return None
    return onnx.FunctionProto.FromString(data) if data else None


def _type_proto(m: Importer, node: OnnxNode, position: int) -> onnx.TypeProto:
    if not node.has(position):
        return onnx.TypeProto()
    value = m.value(node.inputs[position])
    if value.items is not None:
        first = value.items[0] if value.items else None
        element = m.type_of(first) if first is not None else None
        inner = onnx.helper.make_tensor_type_proto(_TO_ONNX[element.dtype] if element else onnx.TensorProto.FLOAT, None)
        return onnx.helper.make_sequence_type_proto(inner)
    kind = m.type_of(value)
    sizes = [s.as_int() if s.as_int() is not None else str(s) for s in kind.shape]
    return onnx.helper.make_tensor_type_proto(_TO_ONNX[kind.dtype], sizes)
