"""Text to tree: what the grammar takes, how operators bind, where things stand."""

from __future__ import annotations

from typing import Any

import pytest

from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.harp import ir
from tatami.harp.parse import parse


def body(statements: str) -> tuple[ir.Statement, ...]:
    return parse(f"graph main(x: f32[3]) -> f32[3] {{ {statements} }}").graphs[0].body


def expression(text: str) -> Any:
    (statement,) = body(f"y = {text}")
    assert isinstance(statement, ir.Assign)
    return statement.value


def shown(e: Any) -> str:
    """The expression with every operation in parentheses."""
    match e:
        case ir.Binary(op=op, left=left, right=right):
            return f"({shown(left)} {op} {shown(right)})"
        case ir.Unary(op=op, operand=operand):
            return f"({op}{shown(operand)})"
        case ir.Group(inner=inner):
            return shown(inner)
        case ir.Name(name=name):
            return name
        case ir.Integer(value=value):
            return str(value)
        case ir.Method(receiver=receiver, callee=callee):
            return f"{shown(receiver)}.{callee.name}()"
        case ir.Call(callee=callee):
            return f"{callee.name}()"
        case _:
            return type(e).__name__


def fault(text: str) -> Diagnostic:
    with pytest.raises(TatamiError) as info:
        parse(text, "t.harp")
    (found,) = info.value.diagnostics
    return found


@pytest.mark.parametrize(
    ("text", "binds"),
    [
        ("a - b - c", "((a - b) - c)"),
        ("a + b * c", "(a + (b * c))"),
        ("a * b @ c / d", "(((a * b) @ c) / d)"),
        ("a < b + 1", "(a < (b + 1))"),
        ("a == b < c", "((a == b) < c)"),
        ("a > 0 & b < 1 | c", "(((a > 0) & (b < 1)) | c)"),
        ("a ^ b & c", "(a ^ (b & c))"),
        ("a << 1 + b", "(a << (1 + b))"),
        ("-a.exp2()", "(-a.exp2())"),
        ("-a ** 2", "(-(a ** 2))"),
        ("a ** -b", "(a ** (-b))"),
        ("!a == b", "((!a) == b)"),
        ("(a + b) * c", "((a + b) * c)"),
        ("- - a", "(-(-a))"),
    ],
)
def test_operators_bind_as_the_levels_say(text: str, binds: str) -> None:
    assert shown(expression(text)) == binds


def test_a_parenthesis_on_a_new_line_begins_a_statement() -> None:
    first, second = body("y = x\n(a, b) = f(y)")
    assert isinstance(first, ir.Assign) and isinstance(first.value, ir.Name)
    assert isinstance(second, ir.Destructure) and [t.name for t in second.targets] == ["a", "b"]


def test_a_parenthesis_on_a_new_line_inside_brackets_is_a_group() -> None:
    assert shown(expression("f(\n(a + b) * c)")) == "f()"
    assert shown(expression("a *\n(b + c)")) == "(a * (b + c))"


def test_lines_go_on_before_operators_and_brackets() -> None:
    assert shown(expression("a\n- b\n.exp()")) == "(a - b.exp())"
    assert isinstance(expression("a\n[0]"), ir.Index)


def test_keywords_end_at_the_end_of_a_word() -> None:
    assert shown(expression("returned + graphs + fused_")) == "((returned + graphs) + fused_)"
    assert fault("graphmain() -> f32[] {}").at == "t.harp:1:1"


@pytest.mark.parametrize("text", ["1.", "1.0", ".5", "1e-5", "2.5E+3", "0.e1"])
def test_numbers_keep_their_spelling(text: str) -> None:
    assert expression(text) == ir.Real(text, at=None, extent=None)  # type: ignore[arg-type]


def test_sizes_may_lack_a_default_and_types_a_size() -> None:
    (graph,) = parse("graph<B=1, N> f(mut param c: f32[B, 2*N], s: i64[]) -> (y: bool[]) {}").graphs
    assert [(s.name.name, s.default) for s in graph.sizes] == [("B", 1), ("N", None)]
    assert [w.name for w in graph.parameters[0].words] == ["mut", "param"]
    assert graph.parameters[1].type.shape == () == graph.results[0].type.shape


def test_slices_keep_what_is_absent() -> None:
    index = expression("x[1:, ::2, a:b:c, ..., None]")
    assert isinstance(index, ir.Index)
    first, second, third, rest, new = index.items
    assert isinstance(first, ir.Slice) and (first.stop, first.step) == (None, None) and first.start is not None
    assert isinstance(second, ir.Slice) and (second.start, second.stop) == (None, None) and second.step is not None
    assert isinstance(third, ir.Slice) and third.step is not None
    assert isinstance(rest, ir.Rest) and isinstance(new, ir.Name)


def test_nodes_and_comments_have_places() -> None:
    text = '// first\ngraph main(x: f32[3]) -> f32[3] {\n    y = f(x, "//") + x // last\n    return y\n}\n'
    file = parse(text, "t.harp")
    statement = file.graphs[0].body[0]
    assert isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Binary)
    assert file.source.at(statement.value.at) == "t.harp:3:20"
    assert file.source.place(statement.value.extent) == (3, 9)
    assert [(c.text, file.source.place(c.at)) for c in file.comments] == [("// first", (1, 1)), ("// last", (3, 24))]
    assert file.source.place(file.graphs[0].end) == (5, 1)


def test_layout_is_no_part_of_the_tree() -> None:
    assert parse("graph main(x:f32[3])->f32[3]{return x}") == parse(
        "// c\ngraph main(\n  x : f32 [3],\n) -> f32[3] {\n\n  return x\n}"
    )


def test_long_chains_and_deep_brackets_end() -> None:
    chain = expression("x" + " + x" * 5000)
    assert isinstance(chain, ir.Binary)
    assert fault("graph main() -> f32[] { y = " + "(" * 100_000).kind == "InputTooLarge"
    assert fault("graph main() -> f32[] { y = " + "-" * 100_000 + "x }").kind == "InputTooLarge"
    assert fault("x" * (1 << 21)).kind == "InputTooLarge"


FAULTS = [
    # text, line, column, words of why, words of the suggestion
    ("graph", 1, 6, "the text ends where '<' or a name is expected", "complete"),
    ("graph main(x: f32[3]) -> f32[3] {\n  y = x\n", 2, 8, "the text ends", "close the graph with '}'"),
    ("grph main() -> f32[] {}", 1, 1, "'graph' or the end of the text is expected, not 'grph'", "'graph' instead of 'grph'"),
    ("graph f() -> f32[] {\n  retrun y }", 2, 10, "is expected, not 'y'", "'return' instead of 'retrun'"),
    ("graph f() -> f32[] {\n  let y = 1 }", 2, 7, "is expected, not 'y'", "assign without a keyword"),
    ("graph f() -> f32[] { y = a and b }", 1, 32, "is expected, not 'b'", "write & for and"),
    ("graph f() -> f32[] { y = a; }", 1, 27, "the character ';'", "leave it out"),
    ("graph f() -> f32[] { # c\n }", 1, 22, "the character '#'", "//"),
    ("graph f() -> f32[] { y = x (a, b) = f(y) }", 1, 35, "is expected, not '='", "on a new line"),
    ('graph f() -> f32[] { y = "abc\n }', 1, 26, "the string does not end", "double quote"),
    ('graph f() -> f32[] { y = "\\q" }', 1, 26, "an escape that does not exist", "backslash"),
    ("graph f() -> f32[] { return }", 1, 29, "an expression is expected", "return y"),
    ("graph f(x: f32[3] y: f32[3]) -> f32[] {}", 1, 19, "')' or ',' is expected", "separate with ','"),
    ("graph f() -> f32[] { y = [1, 2) }", 1, 31, "',' or ']' is expected", "close with ']'"),
    ("graph f(x: f32) -> f32[] {}", 1, 15, "'[' is expected, not ')'", "f32[N], or f32[] for one number"),
    ("graph f(x: f32[]) { return x }", 1, 19, "'->' is expected, not '{'", "-> f32[N]"),
    ("graph f(x: f32[,]) -> f32[] {}", 1, 16, "an expression or ']' is expected", "write a value before ','"),
    ("graph f() -> f32[] { y = x + }", 1, 30, "an expression is expected, not '}'", "write a value before '}'"),
    ("graph f(x f32[]) -> f32[] {}", 1, 14, "':' or a name is expected, not '['", "write ':' or a name before '['"),
    ("graph f() -> f32[] { y = x\0 }", 1, 27, "U+0000", "remove it"),
    ("graph f() -> f32[] { y = 世 }", 1, 26, "U+4E16", "ASCII"),
    ("graph f() -> f32[] { y = 123456789012345678901 }", 1, 26, "an integer of 21 digits", "64 bits"),
]


@pytest.mark.parametrize(("text", "line", "column", "why", "suggestion"), FAULTS)
def test_faults_say_where_why_and_what_to_write(text: str, line: int, column: int, why: str, suggestion: str) -> None:
    found = fault(text)
    assert (found.kind, found.at) == ("ParseError", f"t.harp:{line}:{column}")
    assert why in found.why and suggestion in found.suggestion
    assert found.details == {"line": str(line), "column": str(column)}
    shown_line, carets = found.excerpt.split("\n")
    assert shown_line.startswith(f"{line:>5} | ") and carets.strip(" |").startswith("^")


@pytest.mark.parametrize("word", ["graph", "return", "fused", "fused_reduce", "fused_cumulative", "true", "false"])
def test_reserved_words_name_nothing(word: str) -> None:
    for text in (
        f"graph {word}() -> f32[] {{}}",
        f"graph f() -> f32[] {{ {word} = 1.0 }}",
        f"graph f({word}: f32[]) -> f32[] {{}}",
    ):
        found = fault(text)
        assert found.kind == "ParseError" and word in found.why, text


def test_the_caret_stands_below_the_token() -> None:
    line, carets = fault("graph f() -> f32[] {\n\ty = wide x }").excerpt.split("\n")
    assert line[carets.index("^") :].startswith("}")
    line, carets = fault("graph f() -> f32[] { y = " + "aaaaaaaaa + " * 100 + "b c }").excerpt.split("\n")
    assert line[carets.index("^") :].startswith("}") and len(line) < 120
