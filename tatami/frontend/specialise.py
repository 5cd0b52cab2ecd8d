"""A frontend module with size symbols of `main` replaced, attributes included.

f(x: fp32[N, 4]) = reshape(x) shape=[2*N, 2], N = 3   ->   f(x: fp32[3, 4]) = reshape(x) shape=[6, 2]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from tatami.core.algebra import substitute
from tatami.core.expr import Expr, IntoExpr, expr, var
from tatami.core.module import Module
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import attribute_values, attributes
from tatami.frontend.ops import operation


def specialise(module: Module[Graph], sizes: Mapping[str, Expr]) -> Module[Graph]:
    """The module with these values for size symbols of `main`. Callees keep their own symbols."""
    if not sizes:
        return module
    out: Module[Graph] = substitute.specialise(module, sizes)
    main = out.main
    nodes = tuple(_specialised(n, sizes) for n in main.graph)
    return replace(out, programs={**out.programs, "main": msgspec.structs.replace(main, graph=nodes)})


def with_sizes(graph: Graph, sizes: Mapping[str, IntoExpr]) -> Graph:
    """The graph with some of its own symbols replaced by sizes."""
    values = {name: expr(size) for name, size in sizes.items()}
    module: Module[Graph] = specialise(Module({"main": graph}), values)
    return module.main


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with its size symbols renamed."""
    sizes = {old: var(new) for old, new in names.items()}
    graph = substitute.substitute_sizes(graph, sizes)
    signature = msgspec.structs.replace(
        graph.signature,
        defaults={names.get(s, s): v for s, v in graph.signature.defaults.items()},
        must_bind=tuple(names.get(s, s) for s in graph.signature.must_bind),
    )
    return msgspec.structs.replace(graph, signature=signature, graph=tuple(_specialised(n, sizes) for n in graph.graph))


def _specialised(node: Node, sizes: Mapping[str, Expr]) -> Node:
    if not node.attrs:
        return node
    before = attributes(operation(node), node)
    after = substitute.substitute_sizes(before, sizes)
    if after == before:
        return node
    return msgspec.structs.replace(node, attrs=attribute_values(after))
