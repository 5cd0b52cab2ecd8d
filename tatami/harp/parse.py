"""Text to syntax tree. A text that is not in the grammar raises one diagnostic at its first fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TypeAlias, TypeVar, get_args

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput
from lark.lexer import PatternStr

from tatami.core.diagnostic import TatamiError
from tatami.harp import ir
from tatami.harp.source import Source, Span
from tatami.harp.syntax_errors import syntax_fault

Child: TypeAlias = "Token | ir.Node | Sequence[ir.Node]"
"""A part of a rule: a token, a node, or the nodes of a rule that is a list."""
N = TypeVar("N", bound=ir.Node)

MAX_CHARACTERS = 1 << 20
"""Maximum number of characters of a text."""
MAX_NESTING = 64
"""Maximum nesting of brackets and signs: later passes recurse over it."""
MAX_DIGITS = 20
"""Maximum number of digits of an integer."""


def parse(text: str, name: str = "text.harp") -> ir.File:
    """The tree of a text; `name` stands in diagnostics. Raises TatamiError (E1609, E1706)."""
    source = Source(name, text)
    if len(text) > MAX_CHARACTERS:
        raise TatamiError(
            source.fault(
                "InputTooLarge",
                Span(MAX_CHARACTERS, MAX_CHARACTERS),
                f"the text has {len(text)} characters; the limit is {MAX_CHARACTERS}",
                "name large constants and keep them in an .npz next to the text",
            )
        )
    try:
        graphs = _parser().parse(text)
    except _Refused as refused:
        raise TatamiError(source.fault(refused.kind, refused.span, refused.why, refused.suggestion)) from None
    except UnexpectedInput as error:
        raise TatamiError(syntax_fault(source, error, _literals())) from None
    return ir.File(source, tuple(graphs), tuple(_comments(text)))


class _Refused(Exception):
    """A fault that a callback of the parser finds; the callback does not have the source."""

    def __init__(self, kind: str, token: Token, why: str, suggestion: str) -> None:
        self.kind = kind
        self.span = _span(token)
        self.why = why
        self.suggestion = suggestion


_STRING_OR_COMMENT = re.compile(r'"(?:\\[^\n]|[^"\\\n])*"|//[^\r\n]*')


def _comments(text: str) -> Iterator[ir.Comment]:
    """The comments of a text that is in the grammar."""
    for found in _STRING_OR_COMMENT.finditer(text):
        if found[0].startswith("//"):
            span = Span(found.start(), found.end())
            yield ir.Comment(found[0].rstrip(), at=span, extent=span)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    """The parser, built once: its tables take longer than reading most texts."""
    return Lark(
        (files("tatami.harp") / "grammar.lark").read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        postlex=_Newlines(),
        transformer=_Tree(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )


@lru_cache(maxsize=1)
def _literals() -> dict[str, str]:
    return {t.name: t.pattern.value for t in _parser().terminals if isinstance(t.pattern, PatternStr)}


class _Newlines:
    """A filter of tokens that marks each "(" that begins a line, and limits the nesting: later passes may recurse."""

    always_accept = ()

    def process(self, stream: Iterable[Token]) -> Iterator[Token]:
        last_line, depth, signs = 0, 0, 0
        outer: list[int] = []  # signs before each open bracket
        for token in stream:
            kind = token.type
            if kind in _OPENING:
                if kind == "LPAR" and token.line > last_line:
                    token = Token.new_borrow_pos("NEW_LPAR", str(token), token)
                outer.append(signs)
                depth += 1 + signs
                signs = 0
            elif kind in _SIGNS:
                signs += 1
            else:
                signs = 0
                if kind in _CLOSING and outer:
                    depth -= 1 + outer.pop()
            if depth + signs > MAX_NESTING:
                why = f"more than {MAX_NESTING} brackets and signs inside each other"
                raise _Refused("InputTooLarge", token, why, "name a part of the expression in a statement of its own")
            last_line = token.end_line
            yield token


_OPENING = frozenset({"LPAR", "LSQB", "LBRACE"})
_CLOSING = frozenset({"RPAR", "RSQB", "RBRACE"})
_SIGNS = frozenset({"MINUS", "BANG"})


def _span(token: Token) -> Span:
    return Span(token.start_pos or 0, token.end_pos or 0)


def _extent(children: Sequence[Child]) -> Span:
    """The span from the first to the last of some tokens, nodes and lists of nodes."""
    spans = [s for c in children for s in _spans(c)]
    return Span(spans[0].start, spans[-1].stop)


def _spans(child: Child) -> list[Span]:
    if isinstance(child, Token):
        return [_span(child)]
    if isinstance(child, ir.Node):
        return [child.extent]
    return [s for c in (*child[:1], *child[-1:]) for s in _spans(c)]


class _Tree(Transformer):  # type: ignore[misc]
    """The nodes of the rules of the grammar. Children are tokens, nodes and lists of nodes, in the order of the text."""

    # -- graphs --------------------------------------------------------------------------------------
    def start(self, c: list[Child]) -> list[ir.Graph]:
        return _nodes(c, ir.Graph)

    def graph(self, c: list[Child]) -> ir.Graph:
        name = _name(next(t for t in c if isinstance(t, Token) and t.type == "NAME"))
        return ir.Graph(
            name,
            _listed(c, ir.Size),
            _listed(c, ir.Parameter),
            _listed(c, ir.Result),
            tuple(_statements(_listed(c, ir.Node))),
            at=name.at,
            extent=_extent(c),
            end=_span(c[-1]),
        )

    def sizes(self, c: list[Child]) -> list[ir.Size]:
        return _nodes(c, ir.Size)

    def size(self, c: list[Token]) -> ir.Size:
        number = next((t for t in c if t.type == "INTEGER"), None)
        value = None if number is None else _number(number)
        if value is not None and any(t == "-" for t in c):
            value = -value
        return ir.Size(_name(c[0]), value, at=_span(c[0]), extent=_extent(c))

    def parameters(self, c: list[Child]) -> list[ir.Parameter]:
        return _nodes(c, ir.Parameter)

    def parameter(self, c: list[Child]) -> ir.Parameter:
        *words, name = [_name(t) for t in c if isinstance(t, Token) and t.type == "NAME"]
        return ir.Parameter(tuple(words), name, _node(c[-1], ir.Type), at=name.at, extent=_extent(c))

    def bare_result(self, c: list[Child]) -> list[ir.Result]:
        type = _node(c[0], ir.Type)
        return [ir.Result(None, type, at=type.at, extent=type.extent)]

    def results(self, c: list[Child]) -> list[ir.Result]:
        return _nodes(c, ir.Result)

    def result(self, c: list[Child]) -> ir.Result:
        return ir.Result(_name(c[0]), _node(c[-1], ir.Type), at=_span(c[0]), extent=_extent(c))

    def type(self, c: list[Child]) -> ir.Type:
        return ir.Type(_name(c[0]), tuple(_expressions(c)), at=_span(c[0]), extent=_extent(c))

    # -- statements ----------------------------------------------------------------------------------
    def body(self, c: list[Child]) -> list[ir.Statement]:
        return _statements(c)

    def assign(self, c: list[Child]) -> ir.Assign:
        return ir.Assign(_name(c[0]), _expression(c[2]), at=_span(c[0]), extent=_extent(c))

    def destructure(self, c: list[Child]) -> ir.Destructure:
        names = tuple(_name(t) for t in c if isinstance(t, Token) and t.type == "NAME")
        return ir.Destructure(names, _expression(c[-1]), at=_extent(c[:-2]), extent=_extent(c))

    def return_(self, c: list[Child]) -> ir.Return:
        return ir.Return(tuple(_expressions(c)), at=_span(c[0]), extent=_extent(c))

    def do(self, c: list[Child]) -> ir.Do:
        call = self.call(c)
        return ir.Do(call, at=call.at, extent=call.extent)

    # -- expressions ---------------------------------------------------------------------------------
    def name(self, c: list[Child]) -> ir.Name:
        return _name(c[0])

    def integer(self, c: list[Child]) -> ir.Integer:
        return ir.Integer(_number(c[0]), at=_span(c[0]), extent=_span(c[0]))

    def real(self, c: list[Child]) -> ir.Real:
        return ir.Real(str(c[0]), at=_span(c[0]), extent=_span(c[0]))

    def string(self, c: list[Token]) -> ir.String:
        try:
            value = json.loads(c[0], strict=False)
        except ValueError:
            why = "the string has an escape that does not exist"
            raise _Refused("ParseError", c[0], why, r"write \\ for a backslash and \" for a quote") from None
        return ir.String(value, at=_span(c[0]), extent=_span(c[0]))

    def truth(self, c: list[Child]) -> ir.Truth:
        return ir.Truth(c[0] == "true", at=_span(c[0]), extent=_span(c[0]))

    def group(self, c: list[Child]) -> ir.Group:
        return ir.Group(_expression(c[1]), at=_span(c[0]), extent=_extent(c))

    def tuple_(self, c: list[Child]) -> ir.Tuple:
        return ir.Tuple(tuple(_expressions(c)), at=_span(c[0]), extent=_extent(c))

    def array(self, c: list[Child]) -> ir.Array:
        return ir.Array(tuple(_expressions(c)), at=_span(c[0]), extent=_extent(c))

    def unary(self, c: list[Child]) -> ir.Unary:
        return ir.Unary(str(c[0]), _expression(c[1]), at=_span(c[0]), extent=_extent(c))

    def binary(self, c: list[Child]) -> ir.Binary:
        return ir.Binary(str(c[1]), _expression(c[0]), _expression(c[2]), at=_span(c[1]), extent=_extent(c))

    def operations(self, c: list[Child]) -> ir.Expression:
        """Operand, operator, operand, …, joined by the levels of the operators."""
        first, *others = _expressions(c)
        operands = [first]
        waiting: list[Token] = []
        for operator, operand in zip((t for t in c if isinstance(t, Token)), others, strict=True):
            while waiting and _LEVEL[waiting[-1]] >= _LEVEL[operator]:
                _join(operands, waiting)
            operands.append(operand)
            waiting.append(operator)
        while waiting:
            _join(operands, waiting)
        return operands[0]

    def call(self, c: list[Child]) -> ir.Call:
        return ir.Call(_name(c[0]), _listed(c, ir.Argument), at=_span(c[0]), extent=_extent(c))

    def method(self, c: list[Child]) -> ir.Method:
        return ir.Method(_expression(c[0]), _name(c[2]), _listed(c, ir.Argument), at=_span(c[2]), extent=_extent(c))

    def index(self, c: list[Child]) -> ir.Index:
        base, *items = [n for n in c if isinstance(n, ir.Item)]
        return ir.Index(_expression(base), tuple(items), at=_span(c[1]), extent=_extent(c))

    def slice(self, c: list[Child]) -> ir.Slice:
        parts: list[ir.Expression | None] = [None]
        for child in c:
            if isinstance(child, Token):
                parts.append(None)
            else:
                parts[-1] = _expression(child)
        start, stop, step = (*parts, None)[:3]
        colon = next(t for t in c if isinstance(t, Token))
        return ir.Slice(start, stop, step, at=_span(colon), extent=_extent(c))

    def rest(self, c: list[Child]) -> ir.Rest:
        return ir.Rest(at=_span(c[0]), extent=_span(c[0]))

    def fused(self, c: list[Child]) -> ir.Fused:
        kind = str(c[0])
        assert kind in get_args(ir.FusedKind)
        return ir.Fused(kind, _listed(c, ir.Argument), _expression(c[-2]), at=_span(c[0]), extent=_extent(c))  # type: ignore[arg-type]

    def arguments(self, c: list[Child]) -> list[ir.Argument]:
        return _nodes(c, ir.Argument)

    def argument(self, c: list[Child]) -> ir.Argument:
        name = _name(c[0]) if len(c) == 3 else None
        value = _expression(c[-1])
        return ir.Argument(name, value, at=name.at if name else value.at, extent=_extent(c))


_LEVEL = {op: level for level, ops in enumerate(ir.LEVELS) for op in ops}


def _join(operands: list[ir.Expression], waiting: list[Token]) -> None:
    right = operands.pop()
    left, operator = operands.pop(), waiting.pop()
    operands.append(ir.Binary(str(operator), left, right, at=_span(operator), extent=left.extent.to(right.extent)))


def _number(token: Token) -> int:
    if len(token.lstrip("0")) > MAX_DIGITS:
        raise _Refused("ParseError", token, f"an integer of {len(token)} digits", "integers have 64 bits at most")
    return int(token)


def _name(token: Token) -> ir.Name:
    return ir.Name(str(token), at=_span(token), extent=_span(token))


def _node(child: Child, kind: type[N]) -> N:
    assert isinstance(child, kind)
    return child


def _expression(child: Child) -> ir.Expression:
    assert isinstance(child, ir.Expression)
    return child


def _nodes(children: Sequence[Child], kind: type[N]) -> list[N]:
    return [c for c in children if isinstance(c, kind)]


def _expressions(children: Sequence[Child]) -> list[ir.Expression]:
    return [c for c in children if isinstance(c, ir.Expression)]


def _statements(children: Sequence[Child]) -> list[ir.Statement]:
    return [c for c in children if isinstance(c, ir.Statement)]


def _listed(children: Sequence[Child], kind: type[N]) -> tuple[N, ...]:
    """The nodes of a kind in the lists among some children."""
    return tuple(n for c in children if isinstance(c, list) for n in _nodes(c, kind))
