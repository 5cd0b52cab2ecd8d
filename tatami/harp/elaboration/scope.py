"""The values of names at one place of a graph, and the diagnostics of that graph."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.expr import Expr, var
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.place import placed
from tatami.frontend.operations.elementwise import ELEMENTWISE
from tatami.harp import ir
from tatami.harp.elaboration.values import CONSTANTS, DTYPES, GraphName, Value
from tatami.harp.source import Source, Span


class Skipped(Exception):
    """A value that is unknown because of a fault that is already reported."""


UNKNOWN: Any = object()
"""The value of a name, or of a size, whose statement or declaration had a fault."""

_ELEMENTWISE = {row.name for row in ELEMENTWISE} | {"constant", "size"}
_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bfp(16|32|64)\b"), r"f\1"),
    (re.compile(r"g\.number\(v, dtype\)"), "constant(v, f32)"),
    (re.compile(r"cast\(to="), "cast("),
    (re.compile(r"//"), "/"),
)
"""(pattern of a word of the Graph API, the language's spelling), for diagnostics of the API that a reader of `.harp` sees."""


@dataclass
class Scope:
    """The names of one graph under construction."""

    source: Source
    graph: Graph
    graphs: Mapping[str, ir.Graph]
    """Name -> declaration, for all graphs of the program."""
    failed: Collection[str]
    """Names of graphs that have faults and cannot be built."""
    sizes: dict[str, Expr]
    names: dict[str, Value] = field(default_factory=dict)
    only: frozenset[str] | None = None
    """Names that may occur inside a fused form; None outside one."""
    learned: set[str] = field(default_factory=set)
    """Sizes that data decide: a node gives them their value."""
    trust: bool = False
    """True if the text may hold code: bodies of kernels."""
    _seen: int = 0

    def refuse(self, kind: str, at: Span, why: str, suggestion: str) -> TatamiError:
        """An error at `at` in the text, to be raised."""
        return TatamiError(self.source.fault(kind, at, why, suggestion))

    @contextmanager
    def at(self, span: Span) -> Iterator[None]:
        """A context whose nodes have the origin `span`; errors of the Graph API within it are located there."""
        try:
            with placed(self.source.at(span)):
                yield
        except TatamiError as error:
            raise TatamiError(*(relocate(self.source, span, d) for d in error.diagnostics)) from None
        except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise self.refuse("InvalidAttribute", span, str(error), "give other arguments") from None

    def look_up(self, name: ir.Name) -> Value:
        """The value of a name. Raises TatamiError for an unknown name, Skipped for one whose statement had a fault."""
        word = name.name
        if self.only is not None and word not in self.only and (word in self.names or word in self.sizes):
            raise self.refuse(
                "UnknownName", name.at, f"{word!r} is not an input of this fused form", f"name it among the inputs: ({word}, …)"
            )
        for table in (self.names, self.sizes):
            if word in table:
                if table[word] is UNKNOWN:
                    raise Skipped
                return table[word]
        if word in self.graphs:
            return GraphName(word)
        if word in DTYPES:
            return DTYPES[word]
        if word in CONSTANTS:
            return CONSTANTS[word]
        raise self.undefined(name)

    def is_defined(self, word: str) -> bool:
        """True if `word` is a value, size, graph, dtype or constant of the language here."""
        return any(word in known for known in (self.names, self.sizes, self.graphs, DTYPES, CONSTANTS))

    def undefined(self, name: ir.Name) -> TatamiError:
        """The error for a name without a value, with the nearest name."""
        known = [*self.names, *self.sizes, *self.graphs] if self.only is None else sorted(self.only)
        return self.refuse(
            "UnknownName",
            name.at,
            f"nothing is called {name.name!r} here",
            near(name.name, known) or "assign it before this statement, or make it an input",
        )

    def undeclared_size(self, name: ir.Name) -> TatamiError:
        """The error for a name that is not a size variable of the graph."""
        how = near(name.name, self.sizes) or f"declare it: graph<{name.name}=1> {self.graph.name}(…)"
        return self.refuse("UnboundSymbol", name.at, f"{name.name!r} is not a size variable of {self.graph.name}", how)

    def learn_sizes(self) -> None:
        """Declare the sizes that nodes added since the last call decide."""
        nodes = self.graph.nodes
        for node in nodes[self._seen :]:
            name = node.attrs.get("size")
            if isinstance(name, str):
                self.learned.add(name)
                self.sizes.setdefault(name, var(name))
        self._seen = len(nodes)

    @contextmanager
    def only_elementwise(self, at: Span) -> Iterator[None]:
        """A context, the body of a fused form, in which all nodes have to be elementwise."""
        before = len(self.graph.nodes)
        yield
        if self.only is not None:
            other = next((n.op for n in self.graph.nodes[before:] if n.op not in _ELEMENTWISE), None)
            if other is not None:
                how = "compute it before, and name the result as an input of the fused form"
                raise self.refuse("InvalidAttribute", at, f"{other} is not elementwise", how)


def near(word: str, known: Collection[str], say: Callable[[str], str] = "did you mean {!r}?".format) -> str:
    """A suggestion of the nearest known name; empty if none is near."""
    found = difflib.get_close_matches(word[:80], list(known), 1)
    return say(found[0]) if found else ""


def relocate(source: Source, span: Span, d: Diagnostic) -> Diagnostic:
    """A diagnostic of the Graph API as one of the text; unchanged if it has an excerpt."""
    if d.excerpt:
        return d
    line, column = source.place(span)
    said = str if ", line " in d.at else _respelled  # the words of a formula are its own: fp32(x)
    return msgspec.structs.replace(
        d,
        at=source.at(span),
        why=said(d.why),
        suggestion=said(d.suggestion),
        excerpt=source.excerpt(span),
        details={**d.details, "line": str(line), "column": str(column)},
    )


def _respelled(text: str) -> str:
    for pattern, word in _SPELLINGS:
        text = pattern.sub(word, text)
    return text
