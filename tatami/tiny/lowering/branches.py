"""Size symbols in the two branches of an `if`: one symbol, one meaning.

A CALL if has one table of sizes for both targets. If a symbol stands for different sizes in the two branches, the second
branch is replaced by a copy with symbols of its own.

    if c: f(x: [N, M]) else g(x: [M, N])   ->   if c: f(x: [N, M]) else g'(x: [M', N'])
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tatami.core.expr import Expr
from tatami.core.module import Module, Origins
from tatami.core.signature import symbols
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import Site
from tatami.frontend.operations.control import bind_sizes, call_inputs
from tatami.frontend.specialise import renamed


def separate_branches(module: Module[Graph]) -> Module[Graph]:
    """The module with second branches copied if their symbols clash; the same module if none do."""
    programs: dict[str, Graph] = dict(module.programs)
    origins: dict[str, Origins] = dict(module.origins)
    for name, graph in module.programs.items():
        nodes = list(graph.graph)
        for k, node in enumerate(nodes):
            if node.op != "if":
                continue
            clash = _clash(node, graph, module)
            if not clash:
                continue
            old, made = node.attrs["otherwise"], f"{node.attrs['otherwise']}.else"
            while made in programs:
                made += "'"
            taken = set(symbols(module.programs[node.attrs["then"]].signature)) | set(symbols(module.programs[old].signature))
            programs[made] = renamed(module.programs[old], {s: _free(s, taken) for s in sorted(clash)})
            origins[made] = module.origins.get(old, {})
            nodes[k] = msgspec.structs.replace(node, attrs={**node.attrs, "otherwise": made})
        if tuple(nodes) != graph.graph:
            programs[name] = msgspec.structs.replace(graph, graph=tuple(nodes))
    return module if programs == module.programs else replace(module, programs=programs, origins=origins)


def _clash(node: Node, graph: Graph, module: Module[Graph]) -> set[str]:
    types = [graph.tensors[i] for i in node.inputs[1:] if i]
    site = Site(node.name, module.programs, module.constants)
    found: list[dict[str, Expr]] = []
    for key in ("then", "otherwise"):
        callee = module.programs[node.attrs[key]]
        found.append(bind_sizes(callee, call_inputs(callee, module.constants), types, {}, site)[0])
    return {s for s in found[0].keys() & found[1].keys() if found[0][s] != found[1][s]}


def _free(symbol: str, taken: set[str]) -> str:
    name = f"{symbol}'"
    while name in taken:
        name += "'"
    taken.add(name)
    return name
