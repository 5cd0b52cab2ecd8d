"""What names mean at one place of a graph, and the diagnostics of that graph."""

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
from tatami.frontend.graph_place import placed
from tatami.frontend.ops_elementwise import ELEMENTWISE
from tatami.harp import ir
from tatami.harp.source import Source, Span
from tatami.harp.values import CONSTANTS, DTYPES, GraphName, Value


class Skipped(Exception):
    """A value that a fault already reported leaves without meaning."""


UNKNOWN: Any = object()
"""The value of a name, or of a size, whose statement or declaration had a fault."""

_ELEMENTWISE = {row.name for row in ELEMENTWISE} | {"constant", "size"}
_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bfp(16|32|64)\b"), r"f\1"),
    (re.compile(r"g\.number\(v, dtype\)"), "constant(v, f32)"),
    (re.compile(r"cast\(to="), "cast("),
    (re.compile(r"//"), "/"),
)
"""The Graph API's words in the language's spelling: diagnostics of the API are shown to a reader of `.harp`."""


@dataclass
class Scope:
    """One graph while it is built."""

    source: Source
    graph: Graph
    graphs: Mapping[str, ir.Graph]
    """The graphs of the program, by name."""
    failed: Collection[str]
    """Those that cannot be built."""
    sizes: dict[str, Expr]
    names: dict[str, Value] = field(default_factory=dict)
    only: frozenset[str] | None = None
    """Inside a fused form: the names that may occur."""
    learned: set[str] = field(default_factory=set)
    """Sizes that data decide: a node gives them their value."""
    trust: bool = False
    """The text may hold code: bodies of kernels."""
    _seen: int = 0

    def refuse(self, kind: str, at: Span, why: str, suggestion: str) -> TatamiError:
        return TatamiError(self.source.fault(kind, at, why, suggestion))

    @contextmanager
    def at(self, span: Span) -> Iterator[None]:
        """What is built inside stands at `span`: its origin, and the place of what the Graph API refuses."""
        try:
            with placed(self.source.at(span)):
                yield
        except TatamiError as error:
            raise TatamiError(*(relocate(self.source, span, d) for d in error.diagnostics)) from None
        except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise self.refuse("InvalidAttribute", span, str(error), "give other arguments") from None

    def look_up(self, name: ir.Name) -> Value:
        """The meaning of a name. Raises TatamiError, or Skipped."""
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
        return any(word in known for known in (self.names, self.sizes, self.graphs, DTYPES, CONSTANTS))

    def undefined(self, name: ir.Name) -> TatamiError:
        known = [*self.names, *self.sizes, *self.graphs] if self.only is None else sorted(self.only)
        return self.refuse(
            "UnknownName",
            name.at,
            f"nothing is called {name.name!r} here",
            near(name.name, known) or "assign it before this statement, or make it an input",
        )

    def undeclared_size(self, name: ir.Name) -> TatamiError:
        how = near(name.name, self.sizes) or f"declare it: graph<{name.name}=1> {self.graph.name}(…)"
        return self.refuse("UnboundSymbol", name.at, f"{name.name!r} is not a size variable of {self.graph.name}", how)

    def learn_sizes(self) -> None:
        """Sizes that the nodes made since the last call decide may be named from now on."""
        nodes = self.graph.nodes
        for node in nodes[self._seen :]:
            name = node.attrs.get("size")
            if isinstance(name, str):
                self.learned.add(name)
                self.sizes.setdefault(name, var(name))
        self._seen = len(nodes)

    @contextmanager
    def only_elementwise(self, at: Span) -> Iterator[None]:
        """Inside a fused form, what is built has to be elementwise."""
        before = len(self.graph.nodes)
        yield
        if self.only is not None:
            other = next((n.op for n in self.graph.nodes[before:] if n.op not in _ELEMENTWISE), None)
            if other is not None:
                how = "compute it before, and name the result as an input of the fused form"
                raise self.refuse("InvalidAttribute", at, f"{other} is not elementwise", how)


def near(word: str, known: Collection[str], say: Callable[[str], str] = "did you mean {!r}?".format) -> str:
    """A suggestion of the nearest known name, or nothing."""
    found = difflib.get_close_matches(word[:80], list(known), 1)
    return say(found[0]) if found else ""


def relocate(source: Source, span: Span, d: Diagnostic) -> Diagnostic:
    """A diagnostic of the Graph API as one of the text: it already is one when it has an excerpt."""
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
