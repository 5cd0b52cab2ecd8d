"""Text to syntax tree. A text that is not in the grammar raises one diagnostic at its first fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, get_args

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput
from lark.lexer import PatternStr

from tatami.core.diagnostic import TatamiError
from tatami.harp import ir
from tatami.harp.source import Source, Span
from tatami.harp.syntax_errors import syntax_fault

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
                "name large constants and keep them in an .npz beside the text",
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


def _extent(children: Sequence[Any]) -> Span:
    """The span from the first to the last of some tokens, nodes and lists of nodes."""
    spans = [s for c in children for s in _spans(c)]
    return Span(spans[0].start, spans[-1].stop)


def _spans(child: Any) -> list[Span]:
    if isinstance(child, Token):
        return [_span(child)]
    if isinstance(child, list):
        return [s for c in child[:1] + child[-1:] for s in _spans(c)]
    return [child.extent]


class _Tree(Transformer):  # type: ignore[misc]
    """The nodes of the rules of the grammar. Children are tokens, nodes and lists of nodes, in the order of the text."""

    # -- graphs --------------------------------------------------------------------------------------
    def start(self, c: list[Any]) -> list[ir.Graph]:
        return c

    def graph(self, c: list[Any]) -> ir.Graph:
        name = _name(next(t for t in c if isinstance(t, Token) and t.type == "NAME"))
        groups: dict[type, tuple[Any, ...]] = {}
        for part in c:
            if isinstance(part, list) and part:
                groups[type(part[0])] = tuple(part)
        body = c[-2]
        return ir.Graph(
            name,
            groups.get(ir.Size, ()),
            groups.get(ir.Parameter, ()),
            groups.get(ir.Result, ()),
            tuple(body),
            at=name.at,
            extent=_extent(c),
            end=_span(c[-1]),
        )

    def sizes(self, c: list[Any]) -> list[ir.Size]:
        return _nodes(c)

    def size(self, c: list[Any]) -> ir.Size:
        number = next((t for t in c if t.type == "INTEGER"), None)
        value = None if number is None else _number(number)
        if value is not None and any(t == "-" for t in c):
            value = -value
        return ir.Size(_name(c[0]), value, at=_span(c[0]), extent=_extent(c))

    def parameters(self, c: list[Any]) -> list[ir.Parameter]:
        return _nodes(c)

    def parameter(self, c: list[Any]) -> ir.Parameter:
        *words, name = [_name(t) for t in c if isinstance(t, Token) and t.type == "NAME"]
        return ir.Parameter(tuple(words), name, c[-1], at=name.at, extent=_extent(c))

    def bare_result(self, c: list[Any]) -> list[ir.Result]:
        return [ir.Result(None, c[0], at=c[0].at, extent=c[0].extent)]

    def results(self, c: list[Any]) -> list[ir.Result]:
        return _nodes(c)

    def result(self, c: list[Any]) -> ir.Result:
        return ir.Result(_name(c[0]), c[-1], at=_span(c[0]), extent=_extent(c))

    def type(self, c: list[Any]) -> ir.Type:
        return ir.Type(_name(c[0]), tuple(_nodes(c)), at=_span(c[0]), extent=_extent(c))

    # -- statements ----------------------------------------------------------------------------------
    def body(self, c: list[Any]) -> list[ir.Statement]:
        return c

    def assign(self, c: list[Any]) -> ir.Assign:
        return ir.Assign(_name(c[0]), c[2], at=_span(c[0]), extent=_extent(c))

    def destructure(self, c: list[Any]) -> ir.Destructure:
        names = tuple(_name(t) for t in c if isinstance(t, Token) and t.type == "NAME")
        return ir.Destructure(names, c[-1], at=_extent(c[:-2]), extent=_extent(c))

    def return_(self, c: list[Any]) -> ir.Return:
        return ir.Return(tuple(_nodes(c)), at=_span(c[0]), extent=_extent(c))

    def do(self, c: list[Any]) -> ir.Do:
        call = self.call(c)
        return ir.Do(call, at=call.at, extent=call.extent)

    # -- expressions ---------------------------------------------------------------------------------
    def name(self, c: list[Any]) -> ir.Name:
        return _name(c[0])

    def integer(self, c: list[Any]) -> ir.Integer:
        return ir.Integer(_number(c[0]), at=_span(c[0]), extent=_span(c[0]))

    def real(self, c: list[Any]) -> ir.Real:
        return ir.Real(str(c[0]), at=_span(c[0]), extent=_span(c[0]))

    def string(self, c: list[Any]) -> ir.String:
        try:
            value = json.loads(c[0], strict=False)
        except ValueError:
            why = "the string has an escape that does not exist"
            raise _Refused("ParseError", c[0], why, r"write \\ for a backslash and \" for a quote") from None
        return ir.String(value, at=_span(c[0]), extent=_span(c[0]))

    def truth(self, c: list[Any]) -> ir.Truth:
        return ir.Truth(c[0] == "true", at=_span(c[0]), extent=_span(c[0]))

    def group(self, c: list[Any]) -> ir.Group:
        return ir.Group(c[1], at=_span(c[0]), extent=_extent(c))

    def tuple_(self, c: list[Any]) -> ir.Tuple:
        return ir.Tuple(tuple(_nodes(c)), at=_span(c[0]), extent=_extent(c))

    def array(self, c: list[Any]) -> ir.Array:
        return ir.Array(tuple(_nodes(c)), at=_span(c[0]), extent=_extent(c))

    def unary(self, c: list[Any]) -> ir.Unary:
        return ir.Unary(str(c[0]), c[1], at=_span(c[0]), extent=_extent(c))

    def binary(self, c: list[Any]) -> ir.Binary:
        return ir.Binary(str(c[1]), c[0], c[2], at=_span(c[1]), extent=_extent(c))

    def operations(self, c: list[Any]) -> ir.Expression:
        """Operand, operator, operand, …, joined by the levels of the operators."""
        operands: list[Any] = [c[0]]
        waiting: list[Token] = []
        for operator, operand in zip(c[1::2], c[2::2], strict=True):
            while waiting and _LEVEL[waiting[-1]] >= _LEVEL[operator]:
                _join(operands, waiting)
            operands.append(operand)
            waiting.append(operator)
        while waiting:
            _join(operands, waiting)
        return operands[0]

    def call(self, c: list[Any]) -> ir.Call:
        return ir.Call(_name(c[0]), _listed(c), at=_span(c[0]), extent=_extent(c))

    def method(self, c: list[Any]) -> ir.Method:
        return ir.Method(c[0], _name(c[2]), _listed(c), at=_span(c[2]), extent=_extent(c))

    def index(self, c: list[Any]) -> ir.Index:
        base, *items = _nodes(c)
        return ir.Index(base, tuple(items), at=_span(c[1]), extent=_extent(c))

    def slice(self, c: list[Any]) -> ir.Slice:
        parts: list[Any] = [None]
        for child in c:
            if isinstance(child, Token):
                parts.append(None)
            else:
                parts[-1] = child
        start, stop, step = (*parts, None)[:3]
        colon = next(t for t in c if isinstance(t, Token))
        return ir.Slice(start, stop, step, at=_span(colon), extent=_extent(c))

    def rest(self, c: list[Any]) -> ir.Rest:
        return ir.Rest(at=_span(c[0]), extent=_span(c[0]))

    def fused(self, c: list[Any]) -> ir.Fused:
        kind = str(c[0])
        assert kind in get_args(ir.FusedKind)
        return ir.Fused(kind, _listed(c), c[-2], at=_span(c[0]), extent=_extent(c))  # type: ignore[arg-type]

    def arguments(self, c: list[Any]) -> list[ir.Argument]:
        return _nodes(c)

    def argument(self, c: list[Any]) -> ir.Argument:
        name = _name(c[0]) if len(c) == 3 else None
        return ir.Argument(name, c[-1], at=name.at if name else c[-1].at, extent=_extent(c))


_LEVEL = {op: level for level, ops in enumerate(ir.LEVELS) for op in ops}


def _join(operands: list[Any], waiting: list[Token]) -> None:
    right = operands.pop()
    left, operator = operands.pop(), waiting.pop()
    operands.append(ir.Binary(str(operator), left, right, at=_span(operator), extent=left.extent.to(right.extent)))


def _number(token: Token) -> int:
    if len(token.lstrip("0")) > MAX_DIGITS:
        raise _Refused("ParseError", token, f"an integer of {len(token)} digits", "integers have 64 bits at most")
    return int(token)


def _name(token: Token) -> ir.Name:
    return ir.Name(str(token), at=_span(token), extent=_span(token))


def _nodes(children: list[Any]) -> list[Any]:
    return [c for c in children if not isinstance(c, Token)]


def _listed(children: list[Any]) -> tuple[ir.Argument, ...]:
    return tuple(next((c for c in children if isinstance(c, list)), ()))
