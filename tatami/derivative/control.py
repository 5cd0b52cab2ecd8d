"""Derivatives of calls, branches and loops.

    y = call(x) graph=f       x' = call(x, y') graph=f.gradient
    y = if(c, x) f or h       x' = if(c, x, y') f.gradient or h.gradient
    s = loop(s0, w) body      forward, the states before each turn are scan outputs; then a loop from the last turn to the first
                              carries s' and the sum w', and calls body.gradient with the states of its turn

`f.gradient` takes the operands of `f` and the cotangents of its float results; it computes the forward values that it needs
again, so that nothing but operands (and a loop's states) is kept between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, var
from tatami.core.faults.call_depth import reached
from tatami.core.signature import Input, Output
from tatami.derivative.step import Cotangents, Step, zeros_like
from tatami.derivative.tidy import discard_unread
from tatami.frontend import ir
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import Node
from tatami.frontend.operations.control import CALLEES, call_inputs
from tatami.frontend.reopen import fill

Reverse: TypeAlias = Callable[[Graph, Sequence[Node], Mapping[str, Tensor], Collection[str]], dict[str, Tensor]]
ControlRule: TypeAlias = Callable[[Step, Reverse], Cotangents]


def gradient_graph(root: Graph, name: str, reverse: Reverse) -> str:
    """The name of a graph of the same module: (inputs of `name`, cotangents of its float results) -> cotangents of its float
    inputs. Made once for each graph."""
    before = root._graphs[name].graph()
    made, is_new = _made_once(root, "gradient", name, before)
    if not is_new:
        return made
    g = root.subgraph(made)
    fill(g, before)
    g.origins.update(root._graphs[name].origins)
    g._output_names, g._updates = {}, {}
    if any(o.updates for o in before.signature.outputs):
        raise fail("UnsupportedModel", name, f"{name} updates an input in place", "return the new value as a result")
    inputs = call_inputs(before, root._constants)
    floats = [p.tensor for p in inputs if p.dtype.is_float]
    seeds: dict[str, Tensor] = {}
    for o in _float_results(before.signature.outputs):
        seed = _input(g, f"{o.tensor}.cotangent", o.shape, o.dtype)
        seeds[o.tensor] = seeds[o.tensor] + seed if o.tensor in seeds else seed
    names = {tensor: unused_output(g, f"{tensor}.gradient") for tensor in floats}
    if _calls_itself(root, name):  # its gradient calls itself too
        for port in inputs:
            if port.tensor in names:
                g.promise(names[port.tensor], port.shape, port.dtype)
    found = reverse(g, tuple(g.nodes), seeds, floats)
    for tensor in floats:
        value = found.get(tensor)
        g.output(names[tensor], zeros_like(Tensor(g, tensor)) if value is None else value)
    discard_unread(g, 0)
    return made


def _calls_itself(root: Graph, name: str) -> bool:
    calls = {n: [c.attrs[k] for c in g.nodes for k in CALLEES.get(c.op, ())] for n, g in root._graphs.items()}
    return name in reached(calls, name)


def _made_once(root: Graph, kind: str, name: str, before: ir.Graph, carried: int = 0) -> tuple[str, bool]:
    """The name of the graph of this kind that is made of `before`, for a loop of `carried` states, and True if it has to be made: a graph of that name that is
    there already may be of a document that was edited since, or a user's own."""
    known: dict[tuple[str, str, int], tuple[ir.Graph, str]] = root.__dict__.setdefault("_derived", {})
    found = known.get((kind, name, carried))
    if found is not None and found[0] == before:
        return found[1], False
    made = f"{name}.{kind}"
    while made in root._graphs:
        made += "'"
    known[kind, name, carried] = before, made
    return made, True


def _input(g: Graph, stem: str, shape: Shape, dtype: DType) -> Tensor:
    """One more input, under an unused name that begins with `stem`."""
    while stem in g._names:
        stem += "'"
    return g.input(stem, shape, dtype)


def unused_output(g: Graph, stem: str) -> str:
    """A name for an output that begins with `stem`: of a second derivative, `x.gradient'`."""
    while stem in g._updates or any(p.tensor == stem for p in g._inputs):
        stem += "'"
    return stem


def _float_results(outputs: Sequence[Output]) -> list[Output]:
    return [o for o in outputs if o.dtype.is_float]


def _refuse_new_sizes(s: Step) -> None:
    if s.attrs.new:
        raise fail(
            "UnsupportedModel",
            s.node.name,
            f"{s.node.op} has no derivative where a result's size is found by the run ({', '.join(s.attrs.new)})",
            "give the results sizes that the operands decide",
        )


def _placed(inputs: Sequence[Input], first: int, results: Tensor | tuple[Tensor, ...]) -> Cotangents:
    """The results of a gradient graph at the operands they belong to, from operand `first` on."""
    values = [results] if isinstance(results, Tensor) else list(results)
    out: list[Tensor | None] = [None] * first
    for p in inputs:
        out.append(values.pop(0) if p.dtype.is_float else None)
    return out


def _operands(s: Step, first: int) -> list[Tensor]:
    return [x for x in s.operands[first:] if x is not None]


def _call(s: Step, reverse: Reverse) -> Cotangents:
    _refuse_new_sizes(s)
    root, name = s.graph.root, s.attrs.graph
    callee = root._graphs[name].graph()
    seeds = [s.cotangent(k) for k, r in enumerate(s.results) if r.dtype.is_float]
    made = gradient_graph(root, name, reverse)
    out = s.graph.op("call", *_operands(s, 0), *seeds, graph=made, sizes=s.attrs.sizes)
    return _placed(call_inputs(callee, root._constants), 0, out)


def _if(s: Step, reverse: Reverse) -> Cotangents:
    _refuse_new_sizes(s)
    root = s.graph.root
    then, otherwise = (gradient_graph(root, name, reverse) for name in (s.attrs.then, s.attrs.otherwise))
    seeds = [s.cotangent(k) for k, r in enumerate(s.results) if r.dtype.is_float]
    out = s.graph.op("if", s[0], *_operands(s, 1), *seeds, then=then, otherwise=otherwise)
    return _placed(call_inputs(root._graphs[s.attrs.then].graph(), root._constants), 1, out)


def _loop(s: Step, reverse: Reverse) -> Cotangents:
    _refuse_new_sizes(s)
    root, a, g = s.graph.root, s.attrs, s.graph
    body = root._graphs[a.body].graph()
    ports = call_inputs(body, root._constants)
    states, invariants = ports[2 : 2 + a.carried], ports[2 + a.carried :]
    stacks, turns = _stacked_states(s)
    name = _turn(root, s, (states, invariants), reverse)
    state_seeds = [s.cotangent(k) for k, p in enumerate(states) if p.dtype.is_float]
    totals = [zeros_like(x) for x, p in zip(_operands(s, 2)[a.carried :], invariants, strict=True) if p.dtype.is_float]
    rows = [s.cotangent(a.carried + k) for k, o in enumerate(body.signature.outputs[1 + a.carried :]) if o.dtype.is_float]
    given = [*stacks, *rows, *_operands(s, 2)[a.carried :]]
    out = g.loop(name, [*state_seeds, *totals], given, trip=turns)
    return _placed([*states, *invariants], 2, out)


def _stacked_states(s: Step) -> tuple[list[Tensor], Expr]:
    """The states before each turn, [turns, …], and the number of turns. The loop itself is replaced by one that gives them too."""
    root, g, a = s.graph.root, s.graph, s.attrs
    body = root._graphs[a.body].graph()
    ports = call_inputs(body, root._constants)[2 : 2 + a.carried]
    kept, is_new = _made_once(root, "states", a.body, body, a.carried)
    if is_new:
        made = root.subgraph(kept)
        fill(made, body)
        made.origins.update(root._graphs[a.body].origins)
        for p in ports:
            made.output(unused_output(made, f"{p.tensor}.before"), Tensor(made, p.tensor))
    size = a.size if a.size is not None or a.trip is not None else g.fresh_size("T")
    at = next(k for k, n in enumerate(g._nodes) if n.name == s.node.name)
    names = [g._fresh(f"{s.node.name}.before.{k}") for k in range(a.carried)]
    attrs = {**s.node.attrs, "body": kept}
    if size is not None:
        attrs["size"] = size
    turns = a.trip if a.trip is not None else var(size)
    made_node = msgspec.structs.replace(s.node, attrs=attrs, outputs=(*s.node.outputs, *names))
    types = g._infer(made_node, s.node.name)[-a.carried :] if a.carried else ()
    g._nodes[at] = made_node
    stacks = [g._define(n, t, at) for n, t in zip(names, types, strict=True)]
    return stacks, turns


def _turn(root: Graph, s: Step, ports: tuple[Sequence[Input], Sequence[Input]], reverse: Reverse) -> str:
    """The body of the loop backwards. Inputs: iteration, condition, cotangents of the state, sums of cotangents of the
    invariants; then the stacked states, the cotangents of the rows, the invariants. Outputs: condition, cotangents, sums."""
    a = s.attrs
    states, invariants = ports
    body = root._graphs[a.body].graph()
    name, is_new = _made_once(root, "backwards", a.body, body, a.carried)
    if not is_new:
        return name
    inner = gradient_graph(root, a.body, reverse)
    g = root.subgraph(name)
    g._defaults = dict(body.signature.defaults)
    turns = var(root.fresh_size("T"))
    iteration, condition = g.input("iteration", (), DType.i64), g.input("condition", (), DType.bool)
    seeds = [_input(g, f"{p.tensor}.cotangent", p.shape, p.dtype) for p in states if p.dtype.is_float]
    totals = [_input(g, f"{p.tensor}.total", p.shape, p.dtype) for p in invariants if p.dtype.is_float]
    stacks = [_input(g, f"{p.tensor}.before", (turns, *p.shape), p.dtype) for p in states]
    scans = [o for o in body.signature.outputs[1 + a.carried :] if o.dtype.is_float]
    rows = [_input(g, f"{o.tensor}.cotangents", (turns, *o.shape), o.dtype) for o in scans]
    given = [_input(g, p.tensor, p.shape, p.dtype) for p in invariants]
    last = g.one("size", value=turns) - 1
    turn = last - iteration

    def own(x: Tensor) -> Tensor:
        return x.one("take", turn, axis=0, bounds="clamp")

    out = g.op("call", turn, condition, *map(own, stacks), *given, *seeds, *map(own, rows), graph=inner)
    values = list(out) if isinstance(out, tuple) else [out]
    g.output("continues", condition)
    for k, value in enumerate(values):
        total = k - len(seeds)
        g.output(f"next.{k}", value if total < 0 else totals[total] + value)
    return name


CONTROL: dict[str, ControlRule] = {"call": _call, "if": _if, "loop": _loop}
"""Rules of this family by operation."""
