"""One graph per shape and dtype signature it is called with: sizes that a call fixes become numbers in the callee.

    f(x: fp32[N, M]) called with [B, 64] and [B, 128]     becomes     f.1(x: fp32[N, 64]), f.2(x: fp32[N, 128])
    f called twice with [B, 64]                           stays       f(x: fp32[N, 64])

Sizes that stay symbolic in the caller stay symbols of the callee. Callees whose sizes data decide are left as they are, and so
are those that call themselves, which might do it with ever other sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.faults.call_depth import reached
from tatami.core.module import Module, Origins
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operations.control import CALLEES, bound_sizes
from tatami.frontend.specialise import with_sizes

Sizes = tuple[tuple[str, int], ...]
"""(symbol, value) of the symbols that a call fixes, ordered by name."""


def instantiate_calls(module: Module[Graph]) -> Module[Graph]:
    """The module with one graph per signature; the same module if nothing is called. Uncalled graphs stay."""
    if len(module.programs) == 1:
        return module
    signatures = _Signatures(module)
    wanted = signatures.collect()
    names = _names(wanted, set(module.programs))
    programs: dict[str, Graph] = {}
    origins: dict[str, Origins] = {}
    for (name, sizes), graph in wanted.items():
        made = names[name, sizes]
        programs[made] = _with_callees(graph, module, names, signatures.circles)
        origins[made] = module.origins.get(name, {})
    for name, graph in module.programs.items():
        if not any(name == old for old, _ in wanted):
            programs[name], origins[name] = graph, module.origins.get(name, {})
    return replace(module, programs=programs, origins=origins)


class _Signatures:
    """The (graph, sizes) that `main` reaches, specialised, in order of first call."""

    def __init__(self, module: Module[Graph]) -> None:
        self.module = module
        self.circles = graphs_in_circles(module)
        self.found: dict[tuple[str, Sizes], Graph] = {}

    def collect(self) -> dict[tuple[str, Sizes], Graph]:
        work: list[tuple[str, Sizes]] = [("main", ())]
        while work:
            key = work.pop(0)
            if key in self.found:
                continue
            self.found[key] = _specialised(*key, self.module)
            for node in self.found[key].graph:
                work += [(name, sizes) for _, name, sizes in callees_of(node, self.found[key], self.module, self.circles)]
        return self.found


def callees_of(node: Node, graph: Graph, module: Module[Graph], circles: Set[str]) -> list[tuple[str, str, Sizes]]:
    """(attribute, callee, sizes it fixes) for each graph that a node calls; empty if it calls none. `circles`: graphs that call
    themselves."""
    out: list[tuple[str, str, Sizes]] = []
    for attribute in CALLEES.get(node.op, ()):
        name = node.attrs[attribute]
        if name in circles:
            out.append((attribute, name, ()))
            continue
        bound = bound_sizes(node, name, graph.tensors.__getitem__, module)
        fixed = ((s, e.as_int()) for s, e in sorted(bound.items()))
        out.append((attribute, name, tuple((s, n) for s, n in fixed if n is not None)))
    return out


def graphs_in_circles(module: Module[Graph]) -> set[str]:
    """Names of graphs that reach themselves by calls."""
    calls = {n: [c.attrs[k] for c in g.graph for k in CALLEES.get(c.op, ())] for n, g in module.programs.items()}
    return {name for name in calls if name in reached(calls, name)}


def _specialised(name: str, sizes: Sizes, module: Module[Graph]) -> Graph:
    graph = module.programs[name]
    if not sizes:
        return graph
    graph = with_sizes(graph, dict(sizes))
    left = []
    for e in graph.signature.assumptions:
        difference = (e.lhs - e.rhs).as_int()
        if difference not in (None, 0):
            given = ", ".join(f"{s} = {n}" for s, n in sizes)
            raise fail(
                "AxisAlignmentMismatch",
                e.at or name,
                f"called with {given}, the graph {name!r} needs {e.lhs} = {e.rhs}",
                "pass operands whose sizes agree with this equation",
            )
        left += [e] if difference is None else []
    return msgspec.structs.replace(graph, signature=msgspec.structs.replace(graph.signature, assumptions=tuple(left)))


def _names(wanted: Mapping[tuple[str, Sizes], Graph], taken: set[str]) -> dict[tuple[str, Sizes], str]:
    """A graph with one signature keeps its name; several are numbered in order of first call."""
    count: dict[str, int] = {}
    for name, _ in wanted:
        count[name] = count.get(name, 0) + 1
    out: dict[tuple[str, Sizes], str] = {}
    for key in wanted:
        made, k = key[0], 0
        while count[key[0]] > 1 and (k == 0 or made in taken):
            k += 1
            made = f"{key[0]}.{k}"
        taken.add(made)
        out[key] = made
    return out


def _with_callees(graph: Graph, module: Module[Graph], names: Mapping[tuple[str, Sizes], str], circles: Set[str]) -> Graph:
    """The graph whose calls name the instances, and pass only the sizes that stay symbols."""
    nodes = []
    for node in graph.graph:
        found = callees_of(node, graph, module, circles)
        attrs = dict(node.attrs)
        for attribute, name, sizes in found:
            attrs[attribute] = names[name, sizes]
            if "sizes" in attrs:
                attrs["sizes"] = {s: e for s, e in attrs["sizes"].items() if s not in dict(sizes)}
        nodes.append(msgspec.structs.replace(node, attrs=attrs) if found else node)
    return msgspec.structs.replace(graph, graph=tuple(nodes))
