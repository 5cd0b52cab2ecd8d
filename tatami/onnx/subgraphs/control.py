"""If and Scan. Branches become graphs of the module; a branch that is known to be taken is imported in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import dump_text
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.signature import Input
from tatami.frontend.ir import TensorType
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import data_dependent, unsupported
from tatami.onnx.subgraphs.graphs_inside import (
    bind_symbols,
    child,
    deciding_sizes,
    declared_rank,
    emit_call,
    equation_of,
    finish,
    found_sizes,
    import_body,
    inline,
    of_rank,
    port,
)
from tatami.onnx.subgraphs.loops import loop
from tatami.onnx.subgraphs.structures import Structure, converted, joined, rebuilt, structure_of, tensors_of
from tatami.onnx.values import Value

_OF_THE_FILE = frozenset(["FileUnreadable", "InvalidDocument", "InvalidAttribute", "UnknownValue", "InputTooLarge"])
"""Faults of a branch that are reported even if the other branch is taken."""


def _if(m: Importer, n: OnnxNode) -> list[Value]:
    condition = m.value(n.inputs[0])
    known = m.known(condition)
    if known is not None:
        return inline(m, n.attr("then_branch" if bool(np.asarray(known).reshape(-1)[0]) else "else_branch"), [])
    graphs = set(m.graphs)
    try:
        return _as_branches(m, n, condition)
    except TatamiError as error:
        if any("inputs" in d.details or "sizes" in d.details or d.kind in _OF_THE_FILE for d in error.diagnostics):
            raise
        equation = equation_of(m, m.data(condition))
        if equation is not None and (equation[0] - equation[1]).as_int() is None:
            for name in set(m.graphs) - graphs:
                del m.graphs[name]
            m.assume(*equation)  # exporters write If(size == 1, Squeeze, Identity): size 1 is assumed
            return inline(m, n.attr("then_branch"), [])
        sizes = deciding_sizes(m, m.data(condition))
        if sizes:
            why = f"If: its branches do not fit together ({error.diagnostics[0].why}), and which one is taken follows from {', '.join(sizes)}"
            how = f"fix {', '.join(sizes)} by `sizes=` (command line: -D)"
            raise fail("UnsupportedModel", m.site, why, how, sizes=dump_text(list(sizes)).strip()) from None
        if condition.ports:
            raise data_dependent(m, n, "the choice between two branches of other ranks or kinds", 0) from None
        raise


def _as_branches(m: Importer, n: OnnxNode, condition: Value) -> list[Value]:
    """The results of an If whose two branches become graphs, one of which runs."""
    captures: dict[str, str] = {}
    branches = [child(m, "branch", captures) for _ in ("then_branch", "else_branch")]
    values = [import_body(inner, n.attr(a), []) for inner, a in zip(branches, ("then_branch", "else_branch"), strict=True)]
    declared = [[declared_rank(port) for port in n.attr(a).output] for a in ("then_branch", "else_branch")]
    values = _of_declared_ranks(branches, values, declared)
    structures = _structures(m, n, branches, values)
    results = [
        [t for v, s in zip(made, structures, strict=True) for t in tensors_of(inner, converted(inner, v, s))]
        for inner, made in zip(branches, values, strict=True)
    ]
    for inner in branches:
        bind_symbols(m, inner, [])
    for inner, tensors in zip(branches, results, strict=True):
        finish(m, inner, [], tensors)
    flag = m.rank_0(m.data(condition))
    attrs: dict[str, object] = {"then": branches[0].name, "otherwise": branches[1].name}
    out = iter(emit_call(m, "if", [flag, *captures], attrs))
    return [rebuilt(m, s, out) for s in structures]


def _of_declared_ranks(
    branches: Sequence[Importer], values: Sequence[list[Value]], declared: Sequence[Sequence[int | None]]
) -> list[list[Value]]:
    """The values of both branches, where their ranks differ with the rank that both branches declare."""
    out = [list(made) for made in values]
    for k, pair in enumerate(zip(*values, strict=True)):
        rank = declared[0][k]
        if rank is None or rank != declared[1][k] or not all(v.is_tensor and not v.is_text for v in pair):
            continue
        if len({len(inner.shape(inner.data(v))) for inner, v in zip(branches, pair, strict=True)}) == 2:
            for side, (inner, v) in enumerate(zip(branches, pair, strict=True)):
                out[side][k] = of_rank(inner, v, rank)
    return out


def _structures(m: Importer, n: OnnxNode, branches: Sequence[Importer], values: Sequence[list[Value]]) -> list[Structure]:
    """The structure that holds each result of either branch."""
    found = [found_sizes(inner) for inner in branches]
    out: list[Structure] = []
    for pair in zip(*values, strict=True):
        sides = []
        for inner, value in zip(branches, pair, strict=True):
            sides.append((structure_of(inner, value), [inner.tensors[t] for t in tensors_of(inner, value)]))
        both = joined(sides[0], sides[1], lambda size: not free_vars(size).isdisjoint(found[0] | found[1]))
        if both is None:
            raise data_dependent(m, n, "the choice of the branch that gives a sequence or an optional value", 0)
        out.append(both)
    return out


def _scan(m: Importer, n: OnnxNode) -> list[Value]:
    """Results of a Scan: its body once per element of the scanned axes, as a loop over slices."""
    k = n.attr("num_scan_inputs")
    if m.opset < 9:
        return _batched_scan(m, n, k)
    tensors = [m.data(m.value(i)) for i in n.inputs]
    return [m.result(t) for t in _scanned(m, n, tensors[:-k], tensors[-k:], n.attr("scan_input_directions", [0] * k))]


def _batched_scan(m: Importer, n: OnnxNode, k: int) -> list[Value]:
    """Opset 8: every operand begins with a batch axis, and each of its elements is scanned separately."""
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


def _scanned(m: Importer, n: OnnxNode, states: list[str], scanned: list[str], backwards: list[int]) -> list[str]:
    """The last states, then the stacked results of all iterations."""
    body: onnx.GraphProto = n.attr("body")
    k = len(scanned)
    axes = [a % len(m.shape(t)) for a, t in zip(n.attr("scan_input_axes", [0] * k), scanned, strict=True)]
    scanned = [m.one("flip", [t], {"axes": (a,)}) if d else t for t, a, d in zip(scanned, axes, backwards, strict=True)]
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
    out = emit_call(m, "loop", [count, "", *states, *scanned, *inner.captures], attrs)
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


CONTROL: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"If": _if, "Loop": loop, "Scan": _scan}
"""Handlers of this file and of Loop, by operator."""
