"""`tt.gradient`: the derivative of a number by tensors, of a model as a document or between tensors of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.derivative.control import unused_output
from tatami.derivative.reverse import dependent, reverse
from tatami.derivative.step import zeros_like
from tatami.derivative.tidy import discard_unread
from tatami.frontend import ir
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.place import caller, placed
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.reopen import closed, reopened


@overload
def gradient(model: Graph, of: Tensor, wrt: Sequence[Tensor]) -> tuple[Tensor, ...]: ...
@overload
def gradient(model: object, of: str | None = None, wrt: Sequence[str] = (), *, trust: bool = False) -> Module[ir.Graph]: ...


def gradient(
    model: object, of: object = None, wrt: object = (), *, trust: bool = False
) -> tuple[Tensor, ...] | Module[ir.Graph]:
    """The derivative of `of` by each of `wrt`.

    With names: a module whose graph `main` has, after its own outputs, one called `x.gradient` for each name x of `wrt`, an
    input or a constant of the model (a path, a document, a Graph, …; what `tt.compile` takes). `of` names an output; it may be
    left out if there is one. `trust`: documents that carry code are taken. With tensors of a Graph under construction: the derivatives as tensors of that graph.

    If `of` has several elements, the derivative is that of their sum. Raises TatamiError for a name that is not there, for
    integers, for a variable on which `of` does not depend, and for an operation without a derivative, which it names.
    """
    if isinstance(of, Tensor):
        return between(model, of, wrt)
    names = _names(wrt)
    module = _opened(model, names, trust)
    root = reopened(module)
    outputs = list(root._updates)
    if of is None and len(outputs) == 1:
        of = outputs[0]
    if not isinstance(of, str) or of not in outputs:
        why = f"the model has {len(outputs)} outputs" if of is None else f"{of!r:.80} is not an output of the model"
        raise fail("UnknownName", "of", why, f"name one of {_listed(outputs)}")
    ports = [p.tensor for p in root._inputs]
    for name in names:
        if name not in ports:
            why = f"{name!r} is neither an input nor a constant of the model"
            raise fail("UnknownName", "wrt", why, f"name one of {_listed(ports)}")
        _refuse_shared_constant(module, name)
    with placed(f"gradient of {of}"):
        tensors = between(root, Tensor(root, of), [Tensor(root, name) for name in names])
    for name, value in zip(names, tensors, strict=True):
        root.output(unused_output(root, f"{name}.gradient"), value)
    return closed(root, module)


def between(graph: object, of: Tensor, wrt: object) -> tuple[Tensor, ...]:
    """The derivatives of the sum of `of` by each of `wrt`, as tensors added to `graph`."""
    where = caller()
    if not isinstance(graph, Graph):
        raise fail("InvalidAttribute", where, "tensors belong to a Graph", "pass the graph that they were made in")
    if not isinstance(wrt, list | tuple) or not wrt:
        raise fail("InvalidAttribute", where, f"wrt is {wrt!r:.80}", "give a list of one or more tensors of the graph")
    variables = [graph._own(t, where).name for t in wrt]
    for t in (graph._own(of, where), *wrt):
        if not t.dtype.is_float or t.dtype.is_small:
            why = f"{t.name!r} is {t.dtype}: a derivative is of and by fp16, bf16, fp32 or fp64"
            raise fail("UnsupportedDType", where, why, "cast it to a float before the graph computes with it")
    nodes, first = tuple(graph.nodes), len(graph.nodes)
    for name in variables:
        if of.name not in dependent(graph, nodes, [name]) and of.name != name:
            raise fail(
                "InvalidAttribute",
                where,
                f"{of.name!r} does not depend on {name!r} through floats{_stopped(graph, nodes, name, of.name)}",
                "leave it out of wrt",
            )
    seed = graph.one("full", shape=of.shape, value=1.0, dtype=of.dtype)
    found = reverse(graph, nodes, {of.name: seed}, variables)
    out = tuple(found[name] if name in found else zeros_like(Tensor(graph, name)) for name in variables)
    discard_unread(graph, first, frozenset(t.name for t in out))
    return out


def _opened(model: object, names: Sequence[str], trust: bool) -> Module[ir.Graph]:
    from tatami.models import find_source, open_model

    source = find_source(model)
    if source is not None:
        return source.naming(names)
    given = open_model(model, trust=trust)
    if "frontend" not in given:
        why = f"the model is given from stage {next(iter(given))} on; its graph is not there"
        raise fail("InvalidDocument", "model", why, "give the model itself, or its frontend document")
    return given["frontend"]


def _names(wrt: object) -> list[str]:
    if isinstance(wrt, str) or not isinstance(wrt, Sequence) or not wrt or not all(isinstance(n, str) for n in wrt):
        raise fail("InvalidAttribute", "wrt", f"wrt is {wrt!r:.80}", 'give a list of names of inputs or constants: ["x"]')
    if len(set(wrt)) != len(wrt):
        raise fail("DuplicateId", "wrt", "a name stands twice", "name each once")
    return list(wrt)


def _refuse_shared_constant(module: Module[ir.Graph], name: str) -> None:
    """Raise for a constant that another graph reads directly: that path would be missing from the derivative."""
    if name not in module.constants:
        return
    for other, graph in module.programs.items():
        if other != "main" and graph.signature.input(name) is not None:
            why = f"graph {other!r} reads the constant {name!r} itself"
            raise fail("InvalidAttribute", "wrt", why, "make it an input of main, and pass it as an operand")


def _stopped(graph: Graph, nodes: Sequence[ir.Node], name: str, of: str) -> str:
    """The operation at which the path from a variable to the result leaves the floats; empty if there is no path at all."""
    reached = {name}
    for node in nodes:
        if not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    if of not in reached:
        return ""
    active = dependent(graph, nodes, [name])
    for node in nodes:
        if not active.isdisjoint(node.inputs) and active.isdisjoint(node.outputs):
            kinds = {graph._tensors[o].dtype for o in node.outputs}
            if kinds and DType.unknown not in kinds:
                return f": {node.op} ({node.name}) gives {', '.join(sorted(map(str, kinds)))}, which has no derivative"
    return ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
