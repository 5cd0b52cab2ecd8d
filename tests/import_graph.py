"""The graph of imports: every `import`, also within functions and under TYPE_CHECKING, as an edge between files; and the circles among them.

A package's `__init__.py` counts where a name is taken from it, not where Python merely passes through it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

Graph = Mapping[str, frozenset[str]]
"""Node (path of a file or folder from the root) → the nodes it imports."""


def import_graph(root: Path, packages: Iterable[str]) -> Graph:
    """The files of `packages` (folders of `root`), each with the files of those packages it imports."""
    files = {p.relative_to(root).as_posix(): p for package in packages for p in sorted((root / package).rglob("*.py"))}
    return {name: frozenset(_imported(path, files) - {name}) for name, path in files.items()}


def _imported(path: Path, files: Mapping[str, Path]) -> set[str]:
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out |= {f for a in node.names if (f := _file(a.name, files))}
        elif isinstance(node, ast.ImportFrom) and node.module:
            package = _file(node.module, files)
            out |= {f for a in node.names if (f := _file(f"{node.module}.{a.name}", files) or package)}
    return out


def _file(module: str, files: Mapping[str, Path]) -> str | None:
    path = module.replace(".", "/")
    return next((f for f in (f"{path}.py", f"{path}/__init__.py") if f in files), None)


def folder_graph(files: Graph) -> Graph:
    """The folders of the files, each with the others that a file of it imports, but for those inside it and around it."""
    out: dict[str, set[str]] = {name.rpartition("/")[0]: set() for name in files}
    for name, imported in files.items():
        folder = name.rpartition("/")[0]
        others = {i.rpartition("/")[0] for i in imported}
        out[folder] |= {o for o in others if not f"{o}/".startswith(f"{folder}/") and not f"{folder}/".startswith(f"{o}/")}
    return {k: frozenset(v) for k, v in out.items()}


def part_graph(files: Graph) -> Graph:
    """The parts of a package, which are the files and folders of its own folder, each with the others that a file of it imports."""
    out: dict[str, set[str]] = {}
    for name, imported in files.items():
        out.setdefault(_part(name), set()).update({_part(i) for i in imported} - {_part(name)})
    return {k: frozenset(v) for k, v in out.items()}


def _part(file: str) -> str:
    return "/".join(file.split("/")[:2]).removesuffix(".py")


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one node, each sorted, in order."""
    order: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        _visit(start, graph, seen, order)
    importers: dict[str, set[str]] = {n: set() for n in graph}
    for name, imported in graph.items():
        for i in imported:
            importers[i].add(name)
    seen, out = set(), []
    for start in reversed(order):
        component: list[str] = []
        _visit(start, importers, seen, component)
        if len(component) > 1:
            out.append(sorted(component))
    return sorted(out)


def _visit(start: str, graph: Mapping[str, Iterable[str]], seen: set[str], order: list[str]) -> None:
    """Append to `order` what `start` reaches and `seen` lacks, each node after those it leads to."""
    stack = [(start, iter(sorted(graph[start])))] if start not in seen else []
    seen.add(start)
    while stack:
        node, rest = stack[-1]
        following = next((n for n in rest if n not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(sorted(graph[following]))))


def shown(graph: Graph, circle: Iterable[str]) -> str:
    """A line for each file of a circle: what it imports of the circle."""
    members = set(circle)
    return "\n".join(f"{n} imports {', '.join(sorted(graph[n] & members))}" for n in sorted(members))
