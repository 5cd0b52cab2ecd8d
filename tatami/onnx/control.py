"""If, Loop and Scan: branches and bodies become graphs of the module; what they read from outside becomes operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, free_vars
from tatami.core.signature import Input, Output, Signature
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Site, attributes
from tatami.frontend.ops import OPS
from tatami.frontend.ops_control import count_new
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import data_dependent, unsupported
from tatami.onnx.values import Value

MAX_NESTING = 10
MAX_UNROLLED = 64
"""Iterations of a loop whose state is no tensor of one shape; such a loop is written out."""


def child(m: Importer, stem: str, captures: dict[str, str] | None = None) -> Importer:
    """An importer of a graph inside `m`."""
    around, level = m.parent, 1
    while around is not None:
        around, level = around.parent, level + 1
    if level > MAX_NESTING:
        raise fail("RecursionDepth", m.site, f"graphs inside graphs more than {MAX_NESTING} deep", "flatten the model")
    name = f"{stem}{len(m.graphs)}"
    while name in m.graphs:
        name += "_"
    m.graphs[name] = Graph(Signature(), {}, ())  # the name is taken
    return Importer(
        m.opset, m.functions, m, {} if captures is None else captures, m.depth, m.constants, m.graphs, name=name, site=m.site
    )


def import_body(inner: Importer, graph: onnx.GraphProto, operands: Sequence[Value]) -> list[Value]:
    """The values of a branch or body whose inputs are `operands`."""
    from tatami.onnx.import_node import import_nodes
    from tatami.onnx.load import array_of

    inner.values.update({init.name: Value(array=array_of(init, None)) for init in graph.initializer})
    inner.values.update({port.name: v for port, v in zip(graph.input, operands, strict=False)})
    import_nodes(inner, graph.node)
    return [inner.value(port.name) for port in graph.output]


def inline(m: Importer, graph: onnx.GraphProto, operands: Sequence[Value]) -> list[Value]:
    """The nodes of a branch or body in place: it reads the names around it."""
    saved = m.values
    m.values = dict(saved)
    try:
        return import_body(m, graph, operands)
    finally:
        m.values = saved


def port(inner: Importer, stem: str, kind: TensorType, inputs: list[Input]) -> Value:
    """A new input of a graph."""
    name = f"{stem}{len(inputs)}"
    inner.tensors[name] = kind
    inputs.append(Input(name, kind.dtype, kind.shape))
    return inner.result(name)


def finish(m: Importer, inner: Importer, inputs: Sequence[Input], results: Sequence[str]) -> None:
    """Put the graph of `inner` into the module. Operands: `inputs`, then the captures."""
    made = {o for n in inner.nodes for o in n.outputs}
    names: list[str] = []
    for tensor in results:
        names.append(inner.one("identity", [tensor]) if tensor not in made or tensor in names else tensor)
    _bind_symbols(m, inner, inputs)
    captured = []
    for outer, name in inner.captures.items():
        kind = m.tensors[outer]
        inner.tensors[name] = kind
        captured.append(Input(name, kind.dtype, kind.shape))
    outputs = tuple(Output(t, inner.dtype(t), inner.shape(t)) for t in names)
    signature = Signature((*inputs, *captured, *inner.inputs), outputs, tuple(inner.equations))
    m.graphs[inner.name] = Graph(signature, dict(inner.tensors), tuple(inner.nodes))


def _bind_symbols(m: Importer, inner: Importer, inputs: Sequence[Input]) -> None:
    """Every size symbol the graph uses is the size of an operand: capture a tensor that has it where none does."""
    shapes = [i.shape for i in inputs] + [m.tensors[outer].shape for outer in inner.captures]
    bound = {s.as_name() for shape in shapes for s in shape}
    used = {v for kind in inner.tensors.values() for s in kind.shape for v in free_vars(s)}
    for node in inner.nodes:
        if node.op == "size":
            used |= {v for v in _all_symbols(m) if v in str(node.attrs)}
    for symbol in sorted(used - bound):
        holder = next((t for t, k in m.tensors.items() if any(s.as_name() == symbol for s in k.shape)), None)
        if holder is not None:
            inner.capture(holder)


def _all_symbols(m: Importer) -> set[str]:
    return {v for kind in m.tensors.values() for s in kind.shape for v in free_vars(s)}


def _if(m: Importer, n: OnnxNode) -> list[Value]:
    condition = m.value(n.inputs[0])
    known = m.known(condition)
    if known is not None:
        return inline(m, n.attr("then_branch" if bool(np.asarray(known).reshape(-1)[0]) else "else_branch"), [])
    captures: dict[str, str] = {}
    branches = []
    for attribute in ("then_branch", "else_branch"):
        inner = child(m, "branch", captures)
        values = import_body(inner, n.attr(attribute), [])
        if any(v.items is not None or v.absent for v in values):
            raise data_dependent(m, n, "which branch gives a sequence or an optional value", 0)
        branches.append((inner, [inner.data(v) for v in values]))
    for inner, _ in branches:
        _bind_symbols(m, inner, [])
    for inner, results in branches:
        finish(m, inner, [], results)
    flag = rank_0(m, m.data(condition))
    attrs: dict[str, object] = {"then": branches[0][0].name, "otherwise": branches[1][0].name}
    return [m.result(t) for t in _emit(m, "if", [flag, *captures], attrs)]


def _emit(m: Importer, op: str, inputs: Sequence[str], attrs: dict[str, object]) -> tuple[str, ...]:
    """A call of graphs of the module, with a name for each size of its results that only a run tells."""
    given = attributes(OPS[op], Node(op, op, tuple(inputs), (), to_builtins(attrs)))
    types = [m.tensors[i] if i else None for i in inputs]
    count = count_new(op, given, types, Site(m.site, m.graphs, m.constants))
    stem = m.fresh_size("S")
    return m.emit(op, inputs, {**attrs, "new": tuple(f"{stem}_{k}" for k in range(count))})


def rank_0(m: Importer, tensor: str) -> str:
    return m.one("reshape", [tensor], {"shape": ()}) if m.shape(tensor) else tensor


def _loop(m: Importer, n: OnnxNode) -> list[Value]:
    body: onnx.GraphProto = n.attr("body")
    trip = m.known(m.value(n.inputs[0])) if n.has(0) else None
    start = m.known(m.value(n.inputs[1])) if n.has(1) else np.array(True)
    state = [m.value(i) for i in n.inputs[2:]]
    count = None if trip is None else int(np.asarray(trip).reshape(-1)[0])
    written_out = count is not None and start is not None and count <= MAX_UNROLLED
    if any(v.items is not None or v.absent for v in state):
        if not written_out:
            raise _length_needed(m, n, count)
        return _unroll(m, n, body, count or 0, bool(np.asarray(start).reshape(-1)[0]), state)
    marks = len(m.nodes), set(m.graphs), dict(m.captures)
    try:
        return _as_loop(m, n, body, state)
    except TatamiError as error:
        if not written_out:
            needed = _length_needed(m, n, count)
            raise needed if "inputs" in needed.diagnostics[0].details else error from None
        del m.nodes[marks[0] :]
        for name in set(m.graphs) - marks[1]:
            del m.graphs[name]
        return _unroll(m, n, body, count or 0, bool(np.asarray(start).reshape(-1)[0]), state)


def _length_needed(m: Importer, n: OnnxNode, count: int | None) -> TatamiError:
    """Only a loop of a known number of iterations can be written out."""
    if count is not None and count > MAX_UNROLLED:
        return unsupported(m, f"a loop of {count} iterations over a sequence", f"loop at most {MAX_UNROLLED} times")
    return data_dependent(m, n, "how often a loop runs whose body depends on it", 0 if count is None and n.has(0) else 1)


def _unroll(m: Importer, n: OnnxNode, body: onnx.GraphProto, count: int, go: bool, state: list[Value]) -> list[Value]:
    scans: list[list[str]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    for i in range(count if go else 0):
        results = inline(m, body, [Value(array=np.array(i, np.int64)), Value(array=np.array(True)), *state])
        again = m.known(results[0])
        if again is None:
            raise unsupported(m, "a loop over a sequence that data ends", "end the loop by its trip count")
        state = results[1 : 1 + len(state)]
        for column, value in zip(scans, results[1 + len(state) :], strict=True):
            column.append(m.data(value))
        if not bool(np.asarray(again).reshape(-1)[0]):
            break
    if any(not column for column in scans):
        raise unsupported(m, "scan outputs of a loop that never runs", "remove the loop")
    return [*state, *(m.result(m.one("stack", column, {"axis": 0})) for column in scans)]


def _as_loop(m: Importer, n: OnnxNode, body: onnx.GraphProto, state: list[Value]) -> list[Value]:
    inner = child(m, "body")
    inputs: list[Input] = []
    iteration = port(inner, "iteration", TensorType(DType.i64, ()), inputs)
    condition = port(inner, "condition", TensorType(DType.bool, ()), inputs)
    tensors = [m.data(v) for v in state]
    ports = [port(inner, "state", m.tensors[t], inputs) for t in tensors]
    results = import_body(inner, body, [iteration, condition, *ports])
    again = inner.known(results[0])
    ends = again is None or not bool(np.asarray(again).reshape(-1)[0])
    outputs = [rank_0(inner, inner.data(results[0])), *(inner.data(v) for v in results[1:])]
    ends = ends and outputs[0] != condition.tensor
    finish(m, inner, inputs, outputs)
    count = rank_0(m, m.operand(n, 0)) if n.has(0) else ""
    flag = m.value(n.inputs[1]) if n.has(1) else None
    start = m.known(flag) if flag is not None else np.array(True)
    go = "" if start is not None and bool(np.asarray(start).reshape(-1)[0]) else rank_0(m, m.operand(n, 1))
    sizes = m.sizes(m.value(n.inputs[0])) if n.has(0) else None
    trip: Expr | None = sizes[0] if sizes is not None and not ends and not go else None
    attrs: dict[str, object] = {"body": inner.name, "carried": len(state)}
    if trip is not None and (trip.as_int() is None or (trip.as_int() or 0) >= 0):
        attrs["trip"] = trip
    elif len(outputs) > 1 + len(state):
        attrs["size"] = m.fresh_size("T")
    return [m.result(t) for t in _emit(m, "loop", [count, go, *tensors, *inner.captures], attrs)]


def _scan(m: Importer, n: OnnxNode) -> list[Value]:
    """The body once per element of the scanned axes, as a loop that takes its slices."""
    k = n.attr("num_scan_inputs")
    if m.opset < 9:
        return _batched_scan(m, n, k)
    tensors = [m.data(m.value(i)) for i in n.inputs]
    return [m.result(t) for t in _scanned(m, n, tensors[:-k], tensors[-k:], n.attr("scan_input_directions", [0] * k))]


def _batched_scan(m: Importer, n: OnnxNode, k: int) -> list[Value]:
    """Opset 8: every operand begins with a batch axis, each element of which is scanned by itself."""
    tensors = [m.data(m.value(i)) for i in n.inputs[1:]]
    count = m.shape(tensors[0])[0].as_int()
    if n.has(0) or count is None:
        raise unsupported(m, "Scan of a batch of unknown size or with lengths", "export the model with opset 9 or later")
    rows = []
    for b in range(count):
        place = m.add_constant(np.array(b, np.int64))
        own = [m.one("take", [t, place], {"axis": 0}) for t in tensors]
        rows.append(_scanned(m, n, own[:-k], own[-k:], n.attr("directions", [0] * k)))
    return [m.result(m.one("stack", list(column), {"axis": 0})) for column in zip(*rows, strict=True)]


def _scanned(m: Importer, n: OnnxNode, states: list[str], scanned: list[str], turned: list[int]) -> list[str]:
    """The last states, then what each iteration gave, stacked."""
    body: onnx.GraphProto = n.attr("body")
    k = len(scanned)
    axes = [a % len(m.shape(t)) for a, t in zip(n.attr("scan_input_axes", [0] * k), scanned, strict=True)]
    scanned = [m.one("flip", [t], {"axes": (a,)}) if d else t for t, a, d in zip(scanned, axes, turned, strict=True)]
    length = m.shape(scanned[0])[axes[0]]
    inner = child(m, "scan")
    inputs: list[Input] = []
    iteration = port(inner, "iteration", TensorType(DType.i64, ()), inputs)
    condition = port(inner, "condition", TensorType(DType.bool, ()), inputs)
    ports = [port(inner, "state", m.tensors[t], inputs) for t in states]
    whole = [port(inner, "scanned", m.tensors[t], inputs) for t in scanned]
    slices = [
        inner.result(inner.one("take", [v.tensor, iteration.tensor], {"axis": a})) for v, a in zip(whole, axes, strict=True)
    ]
    results = [inner.data(v) for v in import_body(inner, body, [*ports, *slices])]
    finish(m, inner, inputs, [condition.tensor, *results])
    count = m.one("size", [], {"value": length})
    attrs: dict[str, object] = {"body": inner.name, "carried": len(states), "trip": length}
    out = _emit(m, "loop", [count, "", *states, *scanned, *inner.captures], attrs)
    scans = list(out[len(states) :])
    back = n.attr("scan_output_directions", [0] * len(scans))
    places = n.attr("scan_output_axes", [0] * len(scans))
    for i, (tensor, place, reverse) in enumerate(zip(scans, places, back, strict=True)):
        tensor = m.one("flip", [tensor], {"axes": (0,)}) if reverse else tensor
        rank = len(m.shape(tensor))
        order = list(range(1, rank))
        order.insert(place % rank, 0)
        scans[i] = m.one("permute", [tensor], {"perm": order}) if order != list(range(rank)) else tensor
    return [*out[: len(states)], *scans]


CONTROL: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"If": _if, "Loop": _loop, "Scan": _scan}
