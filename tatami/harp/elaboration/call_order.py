"""Calls between graphs: an order in which callees come first, circles, and chains that are too long."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from tatami.core.diagnostic import Diagnostic
from tatami.core.faults.call_depth import most_calls, reached, without_ends
from tatami.harp import ir
from tatami.harp.source import Source


def callees(graph: ir.Graph, graphs: Mapping[str, ir.Graph]) -> list[ir.Name]:
    """Each mention of another graph in the body of `graph`, as a callee or as an argument that no input, size or variable
    hides, in the order of the text."""
    own = {p.name.name for p in graph.parameters} | {s.name.name for s in graph.sizes} | set(_assigned(graph))
    out: list[ir.Name] = []
    todo: list[object] = list(reversed(graph.body))
    while todo:
        node = todo.pop()
        match node:
            case tuple():
                todo += reversed(node)
            case ir.Name(name):
                out += [node] if name in graphs and name not in own else []
            case ir.Call(callee, arguments):
                out += [callee] if callee.name in graphs else []
                todo.append(arguments)
            case ir.Method(receiver, _, arguments):
                todo += [arguments, receiver]
            case ir.Argument(value=value) | ir.Assign(value=value) | ir.Destructure(value=value):
                todo.append(value)
            case ir.Node():
                todo += reversed([getattr(node, f.name) for f in dataclasses.fields(node)])
    return out


def _assigned(graph: ir.Graph) -> Iterator[str]:
    for statement in graph.body:
        match statement:
            case ir.Assign(target):
                yield target.name
            case ir.Destructure(targets):
                yield from (t.name for t in targets)


def _certain(graph: ir.Graph, graphs: Mapping[str, ir.Graph]) -> set[str]:
    """The graphs that the body of `graph` calls whenever it runs: not those that it names as arguments."""
    out: set[str] = set()
    todo: list[object] = list(graph.body)
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo += node
        elif isinstance(node, ir.Node):
            if isinstance(node, ir.Call) and node.callee.name in graphs:
                out.add(node.callee.name)
            todo += [getattr(node, f.name) for f in dataclasses.fields(node)]
    return out


def call_order(source: Source, graphs: Mapping[str, ir.Graph]) -> tuple[list[str], dict[str, Diagnostic]]:
    """(the graphs, callees first where no circle is closed; name -> diagnostic for each that closes a circle which never ends,
    or a chain that is too deep). A circle through a branch or the body of a loop may end by data."""
    every = {name: callees(g, graphs) for name, g in graphs.items()}
    certain = {name: _certain(g, graphs) for name, g in graphs.items()}
    named = {name: [c.name for c in found] for name, found in every.items()}
    kept = without_ends(named, certain)
    begins = {name for name in graphs if name == "main" or "main" in reached(named, name)}  # main cannot be called
    uses = {name: [c for c in found if c.name in kept[name] or c.name in begins] for name, found in every.items()}
    most = most_calls()
    order: list[str] = []
    faults: dict[str, Diagnostic] = {}
    depth: dict[str, int] = {}
    for root in graphs:
        path: list[tuple[str, Iterator[ir.Name]]] = []
        if root not in depth:
            path.append((root, iter(uses[root])))
            depth[root] = 0
        while path:
            name, rest = path[-1]
            found = next(rest, None)
            if found is None:
                path.pop()
                inner = [depth[c.name] for c in uses[name]]
                depth[name] = 1 + max(inner, default=0)
                if depth[name] > most and name not in faults and max(inner) <= most:
                    deepest = max(uses[name], key=lambda c: depth[c.name])
                    faults[name] = _too_deep(source, deepest, _longest(name, uses, depth))
                order.append(name)
                continue
            on_path = [n for n, _ in path]
            if found.name in on_path:
                circle = [*on_path[on_path.index(found.name) :], found.name]
                faults.setdefault(name, _too_deep(source, found, circle))
            elif found.name not in depth:
                depth[found.name] = 0
                path.append((found.name, iter(uses[found.name])))
    return order, faults


def _longest(name: str, uses: Mapping[str, list[ir.Name]], depth: Mapping[str, int]) -> list[str]:
    chain = [name]
    while uses[chain[-1]] and len(chain) <= most_calls() + 1:
        chain.append(max((c.name for c in uses[chain[-1]]), key=lambda n: depth[n]))
    return chain


def _too_deep(source: Source, at: ir.Name, chain: list[str]) -> Diagnostic:
    shown = chain if len(chain) <= 12 else [*chain[:5], "…", *chain[-5:]]
    circle = chain[0] == chain[-1]
    why = f"{' -> '.join(shown)}: " + (
        f"the calls never end; graphs call each other at most {most_calls()} deep"
        if circle
        else f"graphs call each other more than {most_calls()} deep"
    )
    how = (
        "end it with if_else(…), or repeat with loop(…)"
        if circle
        else "write the work of the innermost graphs in their callers"
    )
    return source.fault("RecursionDepth", at.at, why, how)
