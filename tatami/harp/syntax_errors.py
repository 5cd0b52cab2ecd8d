"""Diagnostics of texts that are not in the grammar: what was found, what was expected, what to write."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from tatami.core.diagnostic import Diagnostic
from tatami.harp.ir import LEVELS
from tatami.harp.source import Source, Span

RESERVED = ("graph", "return", "fused", "fused_reduce", "fused_cumulative", "true", "false")
"""Words that cannot name a graph, an input, a size or a variable."""
_CLASSES = {"NAME": "a name", "INTEGER": "an integer", "REAL": "a number", "STRING": "a string", "NEW_LPAR": "'('", "$END": "the end of the text"}  # fmt: skip
_BEGIN_AN_EXPRESSION = {"a name", "an integer", "a number", "a string", "'('", "'['", "'-'", "'!'", "'true'", "'false'", "'fused'", "'fused_reduce'", "'fused_cumulative'"}  # fmt: skip
_LOOSER_THAN_A_POWER = {repr(op) for level in LEVELS for op in level}
_CONTINUE_AN_EXPRESSION = _LOOSER_THAN_A_POWER | {"'**'", "'.'", "'['"}
_CLOSING = {")": "]", "]": ")"}
_LAST_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t\r\n]*\Z")
_FOREIGN = {
    ";": "statements need no ';': leave it out",
    "#": "write comments as // …",
    "'": 'write strings in double quotes: "…"',
    "~": "write ! for not",
    "?": "write where(condition, a, b)",
    "\\": "lines need no mark to go on: leave it out",
}
_WORDS_OF_OTHERS = {
    "let": "assign without a keyword: name = …",
    "var": "assign without a keyword: name = …",
    "const": "assign without a keyword: name = …",
    "and": "write & for and",
    "or": "write | for or",
    "not": "write ! for not",
    "fn": "begin a graph with: graph name(…) -> … {",
    "def": "begin a graph with: graph name(…) -> … {",
    "if": "write where(condition, a, b), or if_else(condition, then, otherwise, …) with two graphs",
    "for": "write loop(…) with a graph as its body",
    "while": "write loop(…) with a graph as its body",
}


def syntax_fault(source: Source, error: UnexpectedInput, literals: Mapping[str, str]) -> Diagnostic:
    """The diagnostic of a fault that the parser met. `literals`: terminal -> its text, for those with one text."""
    if isinstance(error, UnexpectedCharacters):
        return _character(source, error.pos_in_stream or 0)
    assert isinstance(error, UnexpectedToken)
    token = error.token
    parser = error.interactive_parser
    accepted = {_CLASSES.get(t) or repr(literals[t]) for t in (error.expected if parser is None else parser.accepts())}
    if token.type == "$END":
        end = len(source.text.rstrip())
        how = "close the graph with '}'" if "'}'" in accepted else "complete the text"
        return source.fault("ParseError", Span(end, end), f"the text ends where {_one_of(accepted)} is expected", how)
    span = Span(token.start_pos or 0, token.end_pos or 0)
    word, before = _word_before(source, span.start)
    if token == "=" and word == "return":
        return _reserved(source, before, word, "a statement")
    if str(token) in RESERVED and "a name" in accepted:
        return _reserved(source, span, str(token), _one_of(accepted))
    why = f"{_one_of(accepted)} is expected, not {_shown(str(token))}"
    return source.fault("ParseError", span, why, _advice(source, token, accepted))


def _reserved(source: Source, span: Span, word: str, wanted: str) -> Diagnostic:
    why = f"{word!r} is a reserved word; {wanted} is expected"
    return source.fault("ParseError", span, why, f"choose another name, such as '{word}_'")


def _word_before(source: Source, offset: int) -> tuple[str, Span]:
    """(the name or keyword that ends before `offset`, its span); an empty text if there is none."""
    first = max(0, offset - 200)
    found = _LAST_NAME.search(source.text[first:offset])
    return (found[1], Span(first + found.start(1), first + found.end(1))) if found else ("", Span(offset, offset))


def _one_of(accepted: set[str]) -> str:
    """The accepted words, with one word for all that begin an expression and one for all that continue it."""
    words = []
    rest = set(accepted)
    if rest >= _BEGIN_AN_EXPRESSION:
        words.append("an expression")
        rest -= _BEGIN_AN_EXPRESSION
    if rest >= _LOOSER_THAN_A_POWER:
        words.append("an operator")
        rest -= _CONTINUE_AN_EXPRESSION
    return " or ".join([*words, *sorted(rest, key=lambda w: (w == "a name", w))])


def _character(source: Source, at: int) -> Diagnostic:
    span = Span(at, at + 1)
    character = source.text[at : at + 1]
    if character == '"':
        return source.fault("ParseError", span, "the string does not end on its line", 'close it with a double quote: "…"')
    why = f"the character {_shown(character)} has no meaning here"
    return source.fault("ParseError", span, why, _FOREIGN.get(character, "remove it; names are ASCII letters, digits and _"))


def _shown(text: str) -> str:
    cut = text if len(text) <= 40 else text[:40] + "…"
    if len(text) == 1 and not (text.isascii() and text.isprintable()):
        return f"U+{ord(text):04X}"
    return repr(cut)


def _advice(source: Source, token: Token, accepted: set[str]) -> str:
    before, _ = _word_before(source, token.start_pos or 0)
    if before in _WORDS_OF_OTHERS:
        return _WORDS_OF_OTHERS[before]
    if str(token) in _WORDS_OF_OTHERS:
        return _WORDS_OF_OTHERS[str(token)]
    words = [w for w in ("graph", "return") if repr(w) in accepted]
    for word, place in ((str(token), words), (before, ["graph", "return"] if token.type == "NAME" else [])):
        near = difflib.get_close_matches(word[:40], place, 1, 0.7)
        if near and word != near[0]:
            return f"did you mean {near[0]!r} instead of {word[:40]!r}?"
    if token == "=" and "'}'" in accepted:
        return "begin the statement on a new line"
    if token.type == "NAME" and "','" in accepted:
        return "separate with ','"
    if repr(_CLOSING.get(str(token), "")) in accepted:
        return f"close with {_CLOSING[str(token)]!r}"
    if token == "}" and before == "return":
        return "name what the graph returns: return y"
    if accepted == {"'('", "'='"}:
        return f"write {before} = …, or put an operator or a comma before {before!r}"
    if accepted == {"'['"}:
        return f"write the sizes: {before}[N], or {before}[] for one number"
    if accepted == {"'->'"}:
        return "write what the graph gives: -> f32[N]"
    found = _shown(str(token))
    if token == "**":
        return "write brackets around one of the two powers: (a ** b) ** c"
    if accepted >= _BEGIN_AN_EXPRESSION:
        return f"write a value before {found}, or remove {found}"
    if accepted >= _LOOSER_THAN_A_POWER:
        return f"end the expression before {found}, or remove {found}"
    return f"write {_one_of(accepted)} before {found}, or remove {found}"
