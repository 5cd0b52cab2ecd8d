"""Loop: its body becomes a graph of the module that runs as often as data decide; a carried value may grow.

A state whose size the body changes has a symbol of its own in the body, which is found by trial: the body is imported with the
sizes that the state begins with, then again with a symbol for each size that came out differently, until nothing changes.
Sizes that begin, change and end equal have one symbol.

    state [2], body gives [3]          ->   state [L], body gives [L + 1]; the last state has the new size S
    state [], body gives [a]           ->   state [L, *a.shape], a sequence in one tensor
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, var
from tatami.core.signature import Input
from tatami.frontend.ir import TensorType
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import data_dependent, unsupported
from tatami.onnx.subgraphs.graphs_inside import (
    as_number,
    child,
    emit_call,
    finish,
    found_sizes,
    import_body,
    inline,
    is_number,
    port,
)
from tatami.onnx.subgraphs.structures import Structure, converted, joined, rebuilt, structure_of, tensors_of
from tatami.onnx.values import Value

MAX_UNROLLED = 64
"""Maximum number of iterations of a loop that is unrolled."""
MAX_WRITTEN = 256
"""Maximum number of nodes of an unrolled loop, bodies of all iterations together."""
MAX_TRIES = 12
"""Maximum number of imports of one body until its sizes are told apart."""
Axis = tuple[int, int]
"""(position of a tensor of the state, one of its axes)."""


def loop(m: Importer, n: OnnxNode) -> list[Value]:
    """Loop: unrolled if that is short and removes a growing state; else a loop of the module."""
    body: onnx.GraphProto = n.attr("body")
    trip = m.known(m.value(n.inputs[0])) if n.has(0) else None
    start = m.known(m.value(n.inputs[1])) if n.has(1) else np.array(True)
    state = [m.value(i) for i in n.inputs[2:]]
    count = None if trip is None else int(np.asarray(trip).reshape(-1)[0])
    can_write = count is not None and start is not None and count <= MAX_UNROLLED
    is_short = can_write and (count or 0) * _nodes(body) <= MAX_WRITTEN

    def written() -> list[Value]:
        return _unroll(m, n, body, count or 0, bool(np.asarray(start).reshape(-1)[0]), state)

    if is_short and any(not v.is_tensor for v in state):
        try:
            return written()
        except TatamiError:
            return _as_loop(m, n, body, state)
    taken = set(m.graphs)
    try:
        return _as_loop(m, n, body, state, may_grow=not is_short)
    except TatamiError as error:
        for name in set(m.graphs) - taken:
            del m.graphs[name]
        if can_write:
            return written()
        ports = data_dependent(m, n, "how often a loop runs whose body depends on it", 0 if count is None and n.has(0) else 1)
        raise ports if "inputs" in ports.diagnostics[0].details and not m.reads_sizes else error from None


def _nodes(graph: onnx.GraphProto) -> int:
    inside = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return len(graph.node) + sum(map(_nodes, inside))


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


@dataclass
class _Body:
    """One import of the body: its inputs and results."""

    inner: Importer
    inputs: list[Input]
    condition: Value
    again: Value
    states: list[Value]
    scans: list[Value]
    symbols: set[str] = field(default_factory=set)
    """Sizes of the state that have another value in each iteration."""

    def is_open(self, size: Expr) -> bool:
        """True if the size has another value in each iteration."""
        return not free_vars(size).isdisjoint(self.symbols | found_sizes(self.inner))


def _as_loop(m: Importer, n: OnnxNode, body: onnx.GraphProto, state: list[Value], *, may_grow: bool = True) -> list[Value]:
    structures = [structure_of(m, v) for v in state]
    classes: dict[Axis, int] = {}
    graphs = set(m.graphs)
    for _ in range(MAX_TRIES):
        for name in set(m.graphs) - graphs:
            del m.graphs[name]
        initial = [converted(m, v, s) for v, s in zip(state, structures, strict=True)]
        tensors = [t for v in initial for t in tensors_of(m, v)]
        made = _import(m, body, structures, [m.tensors[t] for t in tensors], classes)
        found = _structures(m, n, made, structures, initial)
        if found != structures:
            structures, classes = found, {}
            continue
        results = [
            t for v, s in zip(made.states, structures, strict=True) for t in tensors_of(made.inner, converted(made.inner, v, s))
        ]
        if len(tensors) == len(state) == len(results):
            spread = [_spread(m, made, k, t, r) for k, (t, r) in enumerate(zip(tensors, results, strict=True))]
            if spread != tensors:
                state = [v if a == b else m.result(b) for v, a, b in zip(state, tensors, spread, strict=True)]
                structures = [structure_of(m, v) for v in state]
                continue
        more = _classes(m, n, made, [m.tensors[t] for t in tensors], results, classes)
        if more == classes:
            return _emitted(m, n, made, structures, tensors, results)
        if not may_grow:
            raise unsupported(m, "a loop whose state grows", "write it out")
        classes = more
    raise unsupported(m, "a loop whose state changes in a way that is not found", "let its state change by one rule")


def _spread(m: Importer, made: _Body, k: int, tensor: str, result: str) -> str:
    """The first value of state k with the shape that a turn gives it, if it is one number and the body does not read it: a
    placeholder of a variable that each turn sets. Else the tensor as it is."""
    shape, port_ = made.inner.shape(result), made.inputs[2 + k].tensor
    is_one = len(m.shape(tensor)) < len(shape) and all(s == ONE for s in m.shape(tensor))
    if not is_one or m.dtype(tensor) != made.inner.dtype(result) or any(made.is_open(s) for s in shape):
        return tensor
    given = {*(t for v in (*made.states, *made.scans, made.again) if v.is_tensor for t in tensors_of(made.inner, v))}
    if port_ in given.union(*(node.inputs for node in made.inner.nodes)):
        return tensor
    return m.one("expand", [m.rank_0(tensor)], {"shape": shape})


def _import(
    m: Importer, body: onnx.GraphProto, structures: Sequence[Structure], types: Sequence[TensorType], classes: dict[Axis, int]
) -> _Body:
    """The body with the given types of the state, and symbols for the sizes in `classes`."""
    inner = child(m, "body")
    inputs: list[Input] = []
    iteration = port(inner, "iteration", TensorType(DType.i64, ()), inputs)
    condition = port(inner, "condition", TensorType(DType.bool, ()), inputs)
    symbols = {c: f"L{c}_{inner.name}" for c in classes.values()}

    def size(k: int, a: int, s: Expr) -> Expr:
        return var(symbols[classes[k, a]]) if (k, a) in classes else s

    kinds = [TensorType(t.dtype, tuple(size(k, a, s) for a, s in enumerate(t.shape))) for k, t in enumerate(types)]
    ports = iter([port(inner, "state", kind, inputs).tensor for kind in kinds])
    values = [rebuilt(inner, s, ports) for s in structures]
    again, *results = import_body(inner, body, [iteration, condition, *values])
    count = len(structures)
    described = zip(results, body.input[2 : 2 + count], body.output[1 : 1 + count])
    states = [as_number(inner, v) if is_number(given) and is_number(result) else v for v, given, result in described]
    return _Body(inner, inputs, condition, again, states, results[count:], set(symbols.values()))


def _structures(
    m: Importer, n: OnnxNode, made: _Body, structures: Sequence[Structure], initial: Sequence[Value]
) -> list[Structure]:
    """The structure that holds the state before the loop and after each iteration."""
    out: list[Structure] = []
    for given, before, after in zip(structures, initial, made.states, strict=True):
        outer = [m.tensors[t] for t in tensors_of(m, before)]
        inner = [made.inner.tensors[t] for t in tensors_of(made.inner, after)]
        both = joined((given, outer), (structure_of(made.inner, after), inner), made.is_open)
        if both is None:
            raise data_dependent(m, n, "the content of a sequence or an optional value that the loop carries", 0)
        out.append(both)
    return out


def _classes(
    m: Importer,
    n: OnnxNode,
    made: _Body,
    types: Sequence[TensorType],
    results: Sequence[str],
    classes: dict[Axis, int],
) -> dict[Axis, int]:
    """The sizes of the state that change; those that begin and change alike have one class."""
    keys: dict[tuple[object, Expr], int] = {}
    out: dict[Axis, int] = {}
    for k, (kind, result) in enumerate(zip(types, results, strict=True)):
        shape = made.inner.shape(result)
        if len(shape) != len(kind.shape):
            why = f"a loop whose state changes its rank from {len(kind.shape)} to {len(shape)}"
            raise unsupported(m, why, "keep the rank of the state, for example by Unsqueeze")
        for a, (before, after) in enumerate(zip(kind.shape, shape, strict=True)):
            if (k, a) in classes or before != after:
                key = (classes.get((k, a), before), after)
                out[k, a] = keys.setdefault(key, len(keys))
    return out


def _emitted(
    m: Importer, n: OnnxNode, made: _Body, structures: Sequence[Structure], tensors: Sequence[str], results: Sequence[str]
) -> list[Value]:
    inner = made.inner
    again = inner.known(made.again)
    ends = again is None or not bool(np.asarray(again).reshape(-1)[0])
    outputs = [inner.rank_0(inner.data(made.again)), *results, *(inner.data(v) for v in made.scans)]
    ends = ends and outputs[0] != made.condition.tensor
    finish(m, inner, made.inputs, outputs)
    count = m.rank_0(m.operand(n, 0)) if n.has(0) else ""
    flag = m.value(n.inputs[1]) if n.has(1) else None
    start = m.known(flag) if flag is not None else np.array(True)
    go = "" if start is not None and bool(np.asarray(start).reshape(-1)[0]) else m.rank_0(m.operand(n, 1))
    sizes = m.sizes(m.value(n.inputs[0])) if n.has(0) else None
    trip: Expr | None = sizes[0] if sizes is not None and not ends and not go else None
    attrs: dict[str, object] = {"body": inner.name, "carried": len(tensors)}
    if trip is not None and (trip.as_int() is None or (trip.as_int() or 0) >= 0):
        attrs["trip"] = trip
    elif made.scans:
        attrs["size"] = m.fresh_size("T")
    out = iter(emit_call(m, "loop", [count, go, *tensors, *inner.captures], attrs))
    return [*(rebuilt(m, s, out) for s in structures), *(m.result(t) for t in out)]
