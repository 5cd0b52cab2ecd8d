"""Inlining of calls that cost more as calls: decide (by the cost model or by decisions), then replace the call by the callee.

    y = call(x) graph=f,  f(a) = b: exp(a), c: neg(b)     becomes     y.b = exp(x),  y = neg(y.b)

A call writes its results to memory, reads them back, and starts kernels that could have been part of others. An inlined
callee is compiled once more for every further call. Branches of an if and bodies of loops stay programs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import dump_text, to_builtins
from tatami.core.cost import estimate, rates
from tatami.core.expr import expr, product
from tatami.core.module import Module, Origins
from tatami.core.signature import Input
from tatami.core.target import Target
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Site
from tatami.frontend.operations.control import CALLEES, bind_sizes, bound_sizes, call_inputs
from tatami.frontend.rewrites.instantiate import graphs_in_circles
from tatami.frontend.specialise import with_sizes

COMPILE_SECONDS = 0.02
"""Seconds to compile one more operation, lowering and C compiler together."""
RUNS = 1000
"""Number of runs that a compilation is assumed to serve: seconds saved per run count this many times."""

Answer = Literal["inline", "call"]


class CallVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision about the calls of one graph. `saved_seconds`: by all runs; `compile_seconds`: added to compiling."""

    key: str
    inlined: bool
    why: str
    calls: int
    saved_seconds: float = 0.0
    compile_seconds: float = 0.0


def graph_key(graph: Graph) -> str:
    """Content hash of a graph, the key of a decision about its calls."""
    return hashlib.sha256(dump_text(to_builtins(graph)).encode()).hexdigest()


def choose_calls(
    module: Module[Graph], target: Target, decisions: Mapping[str, Answer] | None = None
) -> dict[str, CallVerdict]:
    """Called graph -> verdict. `decisions`: `graph_key` -> "inline" or "call"; the key "" stands for all others."""
    given = decisions or {}
    kept = _called_otherwise(module)
    sites = _sites(module)
    circles = graphs_in_circles(module)
    size: dict[str, int] = {}
    out: dict[str, CallVerdict] = {}
    for name in _callees_first(module):
        graph = module.programs[name]
        size[name] = sum(1 + _inlined_size(n, out, size) for n in graph.graph)
        if not sites.get(name):
            continue
        key, calls = graph_key(graph), sites[name]
        copies = len(calls) - (0 if name in kept else 1)
        saved = RUNS * sum(_saved(module.programs[caller], node, target) for caller, node in calls)
        spent = COMPILE_SECONDS * size[name] * copies
        obstacle = "it calls itself" if name in circles else _obstacle(graph, module, calls)
        answer = given.get(key, given.get("", ""))
        if obstacle:
            verdict, why = False, obstacle
        elif answer:
            verdict, why = answer == "inline", "as the decisions say"
        elif copies == 0:
            verdict, why = True, "it is called once: nothing is compiled twice"
        else:
            verdict = saved > spent
            why = f"{len(calls)} calls save {saved:.2g} s in {RUNS} runs, {copies} more copies take {spent:.2g} s to compile"
        out[name] = CallVerdict(key, verdict, why, len(calls), saved, spent)
    return out


def inline_calls(module: Module[Graph], verdicts: Mapping[str, CallVerdict]) -> Module[Graph]:
    """The module with the calls inlined for which `verdicts` say so, and without graphs that this leaves uncalled."""
    if not any(v.inlined for v in verdicts.values()):
        return module
    programs: dict[str, Graph] = {}
    origins: dict[str, Origins] = {}
    done = Module(programs, module.constants, origins)
    for name in _callees_first(module):
        programs[name], origins[name] = _Inliner(module, done, name, verdicts).result()
    needed = ["main"]
    for name in needed:
        needed += [c for n in programs[name].graph for c in _named(n) if c not in needed]
    called = {c for g in module.programs.values() for n in g.graph for c in _named(n)}
    kept = [n for n in module.programs if n in needed or n not in called]
    return replace(module, programs={n: programs[n] for n in kept}, origins={n: origins[n] for n in kept})


def _named(node: Node) -> list[str]:
    return [node.attrs[k] for k in CALLEES.get(node.op, ())]


def _sites(module: Module[Graph]) -> dict[str, list[tuple[str, Node]]]:
    out: dict[str, list[tuple[str, Node]]] = {}
    for caller, graph in module.programs.items():
        for node in graph.graph:
            if node.op == "call":
                out.setdefault(node.attrs["graph"], []).append((caller, node))
    return out


def _called_otherwise(module: Module[Graph]) -> set[str]:
    """Names of graphs that are branches or loop bodies."""
    return {c for g in module.programs.values() for n in g.graph if n.op != "call" for c in _named(n)}


def _callees_first(module: Module[Graph]) -> list[str]:
    """Every graph after the graphs it calls, but for calls that close a circle."""
    out: list[str] = []
    begun: set[str] = set()

    def visit(name: str) -> None:
        if name not in begun:
            begun.add(name)
            for node in module.programs[name].graph:
                for callee in _named(node):
                    visit(callee)
            out.append(name)

    for name in module.programs:
        visit(name)
    return out


def _inlined_size(node: Node, verdicts: Mapping[str, CallVerdict], size: Mapping[str, int]) -> int:
    name = node.attrs["graph"] if node.op == "call" else ""
    return size[name] if name in verdicts and verdicts[name].inlined else 0


def _saved(caller: Graph, node: Node, target: Target) -> float:
    """Seconds saved per run: a round trip through memory for every value that crosses the call inside the caller, and a
    launch."""
    r = rates(target)
    ports = {p.tensor for p in caller.signature.inputs}
    outputs = {o.tensor for o in caller.signature.outputs}
    crossing = [i for i in node.inputs if i and i not in ports] + [o for o in node.outputs if o not in outputs]
    seconds = r.launch
    for name in crossing:
        t = caller.tensors[name]
        size = estimate(product(t.shape), caller.signature.defaults) * t.dtype.itemsize
        seconds += 2 * size / (r.bandwidth * (1 if size > r.cache else 4))  # a cache is some four times as fast
    return seconds


def _obstacle(graph: Graph, module: Module[Graph], calls: list[tuple[str, Node]]) -> str:
    """Why the calls have to stay calls; empty if they need not."""
    if any(o.updates for o in graph.signature.outputs):
        return "it updates an input in place"
    inner = {s for t in graph.tensors.values() for d in t.shape for s in free_vars(d)}
    known = {s for p in graph.signature.inputs for d in p.shape for s in free_vars(d)}
    for caller, node in calls:
        bound = bound_sizes(node, node.attrs["graph"], module.programs[caller].tensors.__getitem__, module)
        open_ = sorted((inner | known) - bound.keys())
        if open_:
            return f"its size {open_[0]} is known only when it runs"
        own = {p.tensor for p in module.programs[caller].signature.inputs if p.storage == "const_pool"}
        for port in _pooled(graph, module):
            if port.tensor in module.programs[caller].tensors and port.tensor not in own:
                return f"{caller} has another tensor called {port.tensor}"
    return ""


def _pooled(graph: Graph, module: Module[Graph]) -> list[Input]:
    return [p for p in graph.signature.inputs if p not in call_inputs(graph, module.constants)]


class _Inliner:
    """The inlining of calls in one graph."""

    def __init__(self, module: Module[Graph], done: Module[Graph], name: str, verdicts: Mapping[str, CallVerdict]) -> None:
        self.module = module
        self.done = done
        self.graph = module.programs[name]
        self.verdicts = verdicts
        self.nodes: list[Node] = []
        self.tensors = dict(self.graph.tensors)
        self.inputs = list(self.graph.signature.inputs)
        self.assumptions = list(self.graph.signature.assumptions)
        self.origins: dict[str, tuple[str, ...]] = dict(module.origins.get(name, {}))
        self.names = set(self.tensors)
        self.labels = {n.name for n in self.graph.graph}

    def result(self) -> tuple[Graph, Origins]:
        for node in self.graph.graph:
            verdict = self.verdicts.get(node.attrs["graph"]) if node.op == "call" else None
            if verdict is None or not verdict.inlined:
                self.nodes.append(node)
            else:
                self.expand(node)
        signature = msgspec.structs.replace(
            self.graph.signature, inputs=tuple(self.inputs), assumptions=tuple(dict.fromkeys(self.assumptions))
        )
        return Graph(signature, self.tensors, tuple(self.nodes)), self.origins

    def expand(self, call: Node) -> None:
        """Append the callee's nodes with the names and sizes of this graph."""
        name = call.attrs["graph"]
        callee = self.done.programs[name]
        bound = bound_sizes(call, name, self.graph.tensors.__getitem__, self.module)
        self.assume(call, name)
        body = with_sizes(callee, bound)
        self.assumptions += body.signature.assumptions
        to: dict[str, str] = {"": ""}
        ports = call_inputs(callee, self.module.constants)
        for port, operand in zip(ports, call.inputs, strict=True):
            to[port.tensor] = self.in_shape(call, operand, body.tensors[port.tensor])
        for port in _pooled(callee, self.module):
            to[port.tensor] = port.tensor
            if port.tensor not in self.tensors:
                self.inputs.append(port)
                self.tensors[port.tensor] = TensorType(port.dtype, port.shape)
        made = {o: None for n in body.graph for o in n.outputs}
        results: dict[str, str] = {}
        for output, result in zip(body.signature.outputs, call.outputs, strict=True):
            if output.tensor in made:
                results.setdefault(output.tensor, result)
        for tensor in made:
            to[tensor] = results[tensor] if tensor in results else _fresh(f"{call.name}.{tensor}", self.names)
            self.tensors[to[tensor]] = body.tensors[tensor]
        lines = self.module.origins.get(name, {})
        site = self.origins.get(call.name, ())
        inner = self.done.origins.get(name, lines)
        for node in body.graph:
            label = _fresh(f"{call.name}.{node.name}", self.labels)
            self.origins[label] = tuple(dict.fromkeys((*inner.get(node.name, ()), *site)))
            inputs, outputs = tuple(to[i] for i in node.inputs), tuple(to[o] for o in node.outputs)
            self.nodes.append(msgspec.structs.replace(node, name=label, inputs=inputs, outputs=outputs))
        for output, result in zip(body.signature.outputs, call.outputs, strict=True):
            if to[output.tensor] != result:  # an input handed on, or one value under two names
                self.add(Node("identity", _fresh(f"{call.name}.{result}", self.labels), (to[output.tensor],), (result,)), site)

    def assume(self, call: Node, name: str) -> None:
        callee = self.module.programs[name]
        types = [self.graph.tensors[i] for i in call.inputs]
        sizes = {s: expr(e) for s, e in call.attrs.get("sizes", {}).items()}
        site = Site(call.name, self.module.programs, self.module.constants)
        self.assumptions += bind_sizes(callee, call_inputs(callee, self.module.constants), types, sizes, site)[1]

    def in_shape(self, call: Node, operand: str, declared: TensorType) -> str:
        """The operand in the shape that the callee declares: a reshape if sizes are equal without a proof."""
        if self.tensors[operand].shape == declared.shape:
            return operand
        name = _fresh(f"{call.name}.{operand}", self.names)
        self.tensors[name] = declared
        attrs = {"shape": [to_builtins(s) for s in declared.shape]}
        self.add(Node("reshape", _fresh(name, self.labels), (operand,), (name,), attrs), self.origins.get(call.name, ()))
        return name

    def add(self, node: Node, origins: tuple[str, ...]) -> None:
        self.nodes.append(node)
        self.origins[node.name] = origins


def _fresh(stem: str, taken: set[str]) -> str:
    name, k = stem, 0
    while name in taken:
        k += 1
        name = f"{stem}.{k}"
    taken.add(name)
    return name
