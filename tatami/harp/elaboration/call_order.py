"""Calls between graphs: an order in which callees come first, circles, and chains that are too long."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from tatami.core.diagnostic import Diagnostic
from tatami.harp import ir
from tatami.harp.source import Source

MAX_DEPTH = 10
"""Maximum number of graphs in a chain of calls, as in the frontend's verifier."""


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


def call_order(source: Source, graphs: Mapping[str, ir.Graph]) -> tuple[list[str], dict[str, Diagnostic]]:
    """(the graphs, callees first; name -> diagnostic for each that closes a circle or a chain of more than 10)."""
    uses = {name: callees(g, graphs) for name, g in graphs.items()}
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
                if depth[name] > MAX_DEPTH and name not in faults and max(inner) <= MAX_DEPTH:
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
    while uses[chain[-1]] and len(chain) <= MAX_DEPTH + 1:
        chain.append(max((c.name for c in uses[chain[-1]]), key=lambda n: depth[n]))
    return chain


def _too_deep(source: Source, at: ir.Name, chain: list[str]) -> Diagnostic:
    shown = chain if len(chain) <= MAX_DEPTH + 2 else [*chain[:5], "…", *chain[-5:]]
    circle = chain[0] == chain[-1]
    why = f"{' -> '.join(shown)}: " + (
        f"the calls never end; graphs call each other at most {MAX_DEPTH} deep"
        if circle
        else f"graphs call each other more than {MAX_DEPTH} deep"
    )
    how = (
        "repeat with loop(…), which needs no recursion" if circle else "write the work of the innermost graphs in their callers"
    )
    return source.fault("RecursionDepth", at.at, why, how)
