"""Graphs inside graphs: branches and bodies become graphs of the module; values they read from outside become operands."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import fail
from tatami.core.expr import ONE, Expr, expr
from tatami.core.signature import Input, Output, Signature
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Site, attributes
from tatami.frontend.operations.control import CALLEES, count_new
from tatami.frontend.operations.size_conditions import with_conditions
from tatami.frontend.ops import OPS
from tatami.onnx.files.definitions import name_of, stored_in
from tatami.onnx.importer import Importer
from tatami.onnx.values import Value

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_']*")

MAX_NESTING = 10
"""Maximum number of graphs inside graphs."""


def child(m: Importer, stem: str, captures: dict[str, str] | None = None) -> Importer:
    """An importer of a graph inside `m`, whose name begins with `stem`."""
    around, level = m.parent, 1
    while around is not None:
        around, level = around.parent, level + 1
    if level > MAX_NESTING:
        raise fail("RecursionDepth", m.site, f"graphs inside graphs more than {MAX_NESTING} deep", "flatten the model")
    name = f"{stem}{len(m.graphs)}"
    while name in m.graphs:
        name += "_"
    m.graphs[name] = Graph(Signature(), {}, ())  # reserves the name
    taken = {} if captures is None else captures
    shared = m.constants, m.graphs
    made = Importer(m.import_nodes, m.opset, m.functions, m, taken, m.depth, *shared, name=name, site=m.site, beside=m.beside)
    made.reads_sizes = m.reads_sizes
    return made


def import_body(inner: Importer, graph: onnx.GraphProto, operands: Sequence[Value]) -> list[Value]:
    """The values of a branch or body whose inputs are `operands`."""
    inner.values.update({name_of(t): Value(array=inner.array(t)) for t in stored_in(graph)})
    inner.values.update({port.name: v for port, v in zip(graph.input, operands, strict=False)})
    inner.import_nodes(inner, graph.node)
    return [inner.value(port.name) for port in graph.output]


def inline(m: Importer, graph: onnx.GraphProto, operands: Sequence[Value]) -> list[Value]:
    """Results of a branch or body imported in place, where it reads the names around it."""
    saved = m.values
    m.values = dict(saved)
    try:
        return import_body(m, graph, operands)
    finally:
        m.values = saved


def is_number(described: onnx.ValueInfoProto) -> bool:
    """True if a graph declares one of its inputs or results a tensor of rank 0."""
    said = described.type.tensor_type
    return said.HasField("shape") and not said.shape.dim


def as_number(inner: Importer, value: Value) -> Value:
    """The value as a tensor of rank 0, if it has axes of size 1 alone; else as it is. Exporters add a number of rank 0 and a
    constant of shape [1], and declare the sum a number. (Other ranks than the declared ones are kept: many declare a wrong one.)"""
    if not value.is_tensor or value.is_text:
        return value
    tensor = inner.data(value)
    is_one = all(s == ONE for s in inner.shape(tensor))
    return inner.result(inner.rank_0(tensor)) if is_one and inner.shape(tensor) else value


def port(inner: Importer, stem: str, kind: TensorType, inputs: list[Input]) -> Value:
    """A new input of a graph, added to `inputs`."""
    name = f"{stem}{len(inputs)}"
    inner.tensors[name] = kind
    inputs.append(Input(name, kind.dtype, kind.shape))
    return inner.result(name)


def finish(m: Importer, inner: Importer, inputs: Sequence[Input], results: Sequence[str]) -> None:
    """Put the graph of `inner` into the module. Its operands: `inputs`, then the captures."""
    made = {o for n in inner.nodes for o in n.outputs}
    names: list[str] = []
    for tensor in results:
        names.append(inner.one("identity", [tensor]) if tensor not in made or tensor in names else tensor)
    bind_symbols(m, inner, inputs)
    captured = []
    for outer, name in inner.captures.items():
        kind = m.tensors[outer]
        inner.tensors[name] = kind
        captured.append(Input(name, kind.dtype, kind.shape))
    outputs = tuple(Output(t, inner.dtype(t), inner.shape(t)) for t in names)
    signature = Signature((*inputs, *captured, *inner.inputs), outputs, tuple(inner.equations))
    m.graphs[inner.name] = with_conditions(Graph(signature, dict(inner.tensors), tuple(inner.nodes)))


def bind_symbols(m: Importer, inner: Importer, inputs: Sequence[Input]) -> None:
    """Make every size symbol that the graph uses the size of an operand: a tensor that has it is captured if no operand
    does."""
    shapes = [i.shape for i in inputs] + [m.tensors[outer].shape for outer in inner.captures]
    bound = {s.as_name() for shape in shapes for s in shape} | found_sizes(inner)
    used = {v for kind in inner.tensors.values() for s in kind.shape for v in free_vars(s)}
    used |= {v for e in inner.equations for side in (e.lhs, e.rhs) for v in free_vars(side)}
    named = {v for node in inner.nodes if node.attrs for v in _NAME.findall(str(node.attrs))}
    for symbol in sorted((used | named) - bound):
        holder = _holder(m, symbol)
        if holder:
            inner.capture(holder)


def _holder(m: Importer, symbol: str) -> str:
    """A tensor of `m`, captured from further outside if necessary, with an axis of that size; "" if there is none."""
    for tensor, kind in m.tensors.items():
        if any(s.as_name() == symbol for s in kind.shape):
            return tensor
    outer = _holder(m.parent, symbol) if m.parent is not None else ""
    return m.capture(outer).tensor if outer else ""


def found_sizes(m: Importer) -> set[str]:
    """The size symbols that nodes made before find when they run."""
    out: set[str] = set()
    for node in m.nodes:
        size = node.attrs.get("size")
        out.update((size,) if isinstance(size, str) else (), node.attrs.get("new", ()))
    return out


def deciding_sizes(m: Importer, tensor: str) -> tuple[str, ...]:
    """The size symbols of the model's inputs that alone decide a tensor's content; none if data do."""
    out: set[str] = set()
    work, seen = [(m, tensor)], set()
    while work:
        graph, name = work.pop()
        if (id(graph), name) in seen or name in graph.constants:
            continue
        seen.add((id(graph), name))
        node = next((node for node in graph.nodes if name in node.outputs), None)
        if node is None:
            outer = next((o for o, inner in graph.captures.items() if inner == name), None)
            if outer is None or graph.parent is None:
                return ()
            work.append((graph.parent, outer))
        elif node.op == "size":
            size = attributes(OPS["size"], node).value
            if not free_vars(size).isdisjoint(found_sizes(graph)):
                return ()
            out |= free_vars(size)
        elif node.op in CALLEES:
            return ()
        else:
            work += [(graph, i) for i in node.inputs if i]
    return tuple(sorted(out))


_SAME_NUMBER = ("reshape", "squeeze", "unsqueeze", "expand", "identity", "cast")
"""Operations that give the same number that they take."""


def equation_of(m: Importer, tensor: str) -> tuple[Expr, Expr] | None:
    """The two sizes that a boolean compares for equality; None for any other tensor."""
    graph, node, _ = _maker(m, tensor)
    if node is None or node.op != "eq":
        return None
    sides = [_size_in(graph, i) for i in node.inputs]
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1])


def _size_in(m: Importer, tensor: str) -> Expr | None:
    _, node, root = _maker(m, tensor)
    if node is not None:
        size: Expr | None = attributes(OPS["size"], node).value if node.op == "size" else None
        return size
    held = m.constants.get(root)
    return expr(int(held.array.reshape(-1)[0])) if held is not None and held.dtype.is_int and held.array.size == 1 else None


def _maker(m: Importer, tensor: str) -> tuple[Importer, Node | None, str]:
    """(graph, node, name there) of the number that a tensor holds; no node for a constant or an input."""
    graph = m
    while True:
        node = next((node for node in graph.nodes if tensor in node.outputs), None)
        if node is not None and node.op in _SAME_NUMBER:
            tensor = node.inputs[0]
        elif node is None and graph.parent is not None and tensor in graph.captures.values():
            tensor = next(outer for outer, inner in graph.captures.items() if inner == tensor)
            graph = graph.parent
        else:
            return graph, node, tensor


def emit_call(m: Importer, op: str, inputs: Sequence[str], attrs: dict[str, object]) -> tuple[str, ...]:
    """A call of graphs of the module, with a new symbol for each size of its results that only a run decides."""
    given = attributes(OPS[op], Node(op, op, tuple(inputs), (), to_builtins(attrs)))
    types = [m.tensors[i] if i else None for i in inputs]
    count = count_new(op, given, types, Site(m.site, m.graphs, m.constants))
    stem = m.fresh_size("S")
    return m.emit(op, inputs, {**attrs, "new": tuple(f"{stem}_{k}" for k in range(count))})
