"""Syntax tree to frontend module, through the Graph API. Every graph is built, uncalled ones too.

A fault ends its statement; the names that it assigns are then unknown, and statements that read them are skipped,
so that one fault is one diagnostic.
"""

from __future__ import annotations

from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.module import Module
from tatami.frontend import ir as frontend
from tatami.frontend.graph import Graph
from tatami.harp import ir
from tatami.harp.elaboration.body import Body
from tatami.harp.elaboration.call_order import call_order, callees
from tatami.harp.elaboration.constants import Constants
from tatami.harp.elaboration.scope import Scope, near, relocate
from tatami.harp.source import Source, Span

MAX_FAULTS = 100
"""Maximum number of faults that are reported for one text."""


def elaborate(file: ir.File, constants: Constants, *, trust: bool) -> Module[frontend.Graph]:
    """The module of a file. Raises TatamiError with all faults, in the order of the text; code is a fault without `trust`."""
    program = _Program(file, constants, trust)
    module = program.module()
    if program.faults:
        raise TatamiError(*sorted(program.faults, key=_place)[:MAX_FAULTS])
    assert module is not None
    return module


def _place(d: Diagnostic) -> tuple[int, int]:
    return int(d.details.get("line", 0)), int(d.details.get("column", 0))


class _Program:
    def __init__(self, file: ir.File, constants: Constants, trust: bool) -> None:
        self.trust = trust
        self.source = file.source
        self.constants = constants
        self.faults: list[Diagnostic] = []
        self.graphs = self._by_name(file)
        self.failed: set[str] = set()
        self.bodies: dict[str, Body] = {}
        """The graphs that are built, or announced to graphs that call them."""

    def _by_name(self, file: ir.File) -> dict[str, ir.Graph]:
        out: dict[str, ir.Graph] = {}
        for g in file.graphs:
            name = g.name.name
            if name in out:
                line, _ = self.source.place(out[name].at)
                why = f"a graph {name!r} is already on line {line}"
                self.faults.append(self.source.fault("DuplicateId", g.at, why, f"choose another name, such as {name}_2"))
            elif name in RESERVED_PROGRAMS:
                why = f"{name!r} is the name of a program of the compiler's own"
                self.faults.append(self.source.fault("DuplicateId", g.at, why, f"choose another name, such as {name}_2"))
            out.setdefault(name, g)
        if "main" not in out:
            self.faults.append(self._no_main(file))
        return out

    def _no_main(self, file: ir.File) -> Diagnostic:
        at = file.graphs[-1].at if file.graphs else Span(0, 0)
        names = [g.name.name for g in file.graphs]
        close = near("main", [n for n in names if n.lower().startswith("ma")], "rename {} to main".format)
        why = "no graph is called main; it is where a program begins"
        return self.source.fault("NoMain", at, why, close or "name one graph main, or add one that calls the others")

    def module(self) -> Module[frontend.Graph] | None:
        order, circles = call_order(self.source, self.graphs)
        root = Graph("main")
        for name in order:
            if name in circles:
                self.faults.append(circles[name])
                self.failed.add(name)
                continue
            for callee in callees(self.graphs[name], self.graphs):
                if callee.name not in self.bodies and callee.name not in circles and callee.name != "main":
                    self._body(self.graphs[callee.name], root).announce()
            self._build(self.bodies.get(name) or self._body(self.graphs[name], root))
        if self.faults:
            return None
        try:
            return root.module()
        except TatamiError as error:
            self.faults += [located(self.source, d) for d in error.diagnostics]
            return None

    def _body(self, declared: ir.Graph, root: Graph) -> Body:
        name = declared.name.name
        graph = root if name == "main" else root.subgraph(name)
        scope = Scope(self.source, graph, self.graphs, self.failed, {}, trust=self.trust)
        self.bodies[name] = Body(declared, graph, scope, self.constants)
        return self.bodies[name]

    def _build(self, body: Body) -> None:
        faults = body.build()
        if not faults:
            try:
                body.graph.graph()
            except TatamiError as error:
                faults = [located(self.source, d) for d in error.diagnostics]
        self.faults += faults
        if faults or body.is_incomplete:
            self.failed.add(body.declared.name.name)


RESERVED_PROGRAMS = frozenset({"setup"})
"""Names of programs that the compiler makes, and a text cannot define."""


def located(source: Source, d: Diagnostic) -> Diagnostic:
    """The diagnostic of a finished graph with its place in the text, ``model.harp:3:9``."""
    line, _, column = d.at.removeprefix(f"{source.name}:").partition(":")
    if not (d.at.startswith(f"{source.name}:") and line.isdigit() and column.isdigit()):
        return relocate(source, Span(0, 0), d)
    start = source.offset(int(line), int(column))
    return relocate(source, Span(start, start + 1), d)
