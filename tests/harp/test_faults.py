"""Reasons to refuse a program: kind, place, and suggestion. docs/language.md lists these faults."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.files.array_file import ArrayArchive

MAIN = "graph<N=4> main(x: f32[N, 3], y: f32[N, 3]) -> f32[N, 3] {\n"
CALLEE = "graph<M=2, K=3> f(a: f32[M, K], b: f32[M, K]) -> f32[M, K] { return a + b }\n"
PAIR = "graph<M=2> pair(a: f32[M]) -> (p: f32[M], q: f32[M]) { return a + 1.0, a * 2.0 }\n"


def faults(text: str) -> list[Diagnostic]:
    with pytest.raises(TatamiError) as info:
        tt.parse(text, {"w": np.ones(3, np.float32)}, "m.harp")
    return list(info.value.diagnostics)


BODY = [
    # a line of main's body; column of the fault; kind; words of why; words of the suggestion
    ("z = x + yy", 9, "UnknownName", "nothing is called 'yy'", "did you mean 'y'"),
    ("z = x + foreign", 9, "UnknownName", "nothing is called 'foreign'", "assign it before"),
    ("z = x.sfotmax(axis=1)", 7, "UnknownOp", "no operation is called 'sfotmax'", "did you mean 'softmax'"),
    ("z = sofmax(x, axis=1)", 5, "UnknownOp", "no graph or operation is called 'sofmax'", "did you mean 'softmax'"),
    ("z = paire(x)", 5, "UnknownOp", "no graph or operation", "did you mean 'pair'"),
    ("z = x.pair()", 7, "UnknownOp", "pair is a graph", "pair(…)"),
    ("z = x(y)", 5, "UnknownOp", "'x' is a value", "new line"),
    ("z = x.softmax(axiz=1)", 15, "InvalidAttribute", "no parameter 'axiz'", "did you mean 'axis'"),
    ("z = softmax(x, axiz=1)", 16, "InvalidAttribute", "no parameter 'axiz'", "did you mean 'axis'"),
    ("z = x.softmax(1.5)", 15, "InvalidAttribute", "axis of softmax takes an integer, not the number 1.5", "an integer"),
    ("z = x.softmax(1, 2)", 18, "InvalidAttribute", "no place for the number 2", "parameters are: axis"),
    ("z = x.softmax(1, axis=1)", 18, "InvalidAttribute", "given twice", "leave one"),
    ("z = x.repeat(1)", 7, "InvalidAttribute", "repeat needs times", "add times="),
    ("z = x.cast(f31)", 12, "UnknownName", "nothing is called 'f31'", "assign it"),
    ("z = x.gelu(1)", 12, "InvalidAttribute", "approximate of gelu takes a string", "a string"),
    ("z = x.softmax(axis=7)", 7, "AxisOutOfRange", "axis 7 of a tensor of rank 2", "0..1"),
    ("z = x + x.sum(1)", 7, "BroadcastMismatch", "shapes [N, 3] and [N]", "insert expand"),
    ("z = x + y.cast(f16)", 7, "DTypeMismatch", "dtypes f32 and f16", "cast(f32)"),
    ("z = x & y", 7, "UnsupportedDType", "f32", "cast"),
    ("z = x + N", 9, "InvalidAttribute", "a tensor and the size N", "size(N).cast(f32)"),
    ("z = x.exp() + N * 2.0", 17, "InvalidAttribute", "a size and the number 2.0", "size(N)"),
    ("z = N < 3", 7, "InvalidAttribute", "of sizes N and 3", "size(N)"),
    ("z = x.reshape([N / 0, 3])", 18, "InvalidAttribute", "divides by", "positive"),
    ("z = x * (1 / 0)", 12, "InvalidAttribute", "divides by zero", "inf"),
    ("z = x * (2 ** 100)", 12, "InvalidAttribute", "64 bits", "smaller"),
    ("z = x * 1e999", 9, "ParseError", "larger than every f64", "inf"),
    ('z = x + "a"', 9, "InvalidAttribute", "a tensor and a string", "a number"),
    ("z = -f32", 5, "InvalidAttribute", "- of the dtype f32", "a tensor"),
    ("z = x[0, 0, 0]", 6, "AxisOutOfRange", "3 indices", "at most"),
    ("z = x[..., ...]", 6, "InvalidAttribute", "two '...'", "keep one"),
    ("z = x[::0]", 9, "InvalidAttribute", "a step is an integer other than 0", "a number"),
    ("z = x[y:]", 7, "InvalidAttribute", "a bound is a number or a size", "take"),
    ("z = N[0]", 6, "InvalidAttribute", "the size N has no elements", "tensor"),
    ("N = x", 1, "DuplicateId", "'N' is a size variable", "N_"),
    ("z = pair(x[:, 0])", None, "", "", ""),
    ("z = pair(x[:, 0]) + 1.0", 5, "InvalidAttribute", "the 2 results of pair", "(a, b) = pair"),
    ("z = pair(x[:, 0])[0]", 18, "InvalidAttribute", "the 2 results of pair are not one tensor", "(a, b) = …"),
    ("z = x ** 2 ** 3", 12, "ParseError", "an operator", "(a ** b) ** c"),
    ("(p, q, r) = pair(x[:, 0])", 1, "ResultCount", "3 names for 2 results of pair", "(a, b) = …"),
    ("(p, p) = pair(x[:, 0])", 5, "DuplicateId", "'p' would name two of the results", "p_2"),
    ("z = x.sum().expand([12345678901234567890])", 13, "InvalidSymbol", "a size is 12345678901234567890", "64 bits"),
    ("z = x.cast(f8e4m3fn) + x.cast(f8e4m3fn)", 22, "UnsupportedDType", "add of f8e4m3fn", "cast(f32)"),
    ("z = x.cast(i4) + x.cast(i4)", 16, "UnsupportedDType", "add of i4", "cast(i32)"),
    ("(p, q) = x", 1, "ResultCount", "2 names for 1 result", "one name per result"),
    ("z = f(x)", 5, "InputMismatch", "takes 2 operands (a, b), the call gives 1", "one operand per input"),
    ("z = f(x, y, x)", 5, "InputMismatch", "the call gives 3", "one operand per input"),
    ("z = f(x, y.cast(f16))", 5, "DTypeMismatch", "b is f32, the operand f16", "cast(f32)"),
    ("z = f(x, x.sum(1))", 5, "BroadcastMismatch", "b has shape [M, K], the operand [N]", "rank"),
    ("z = f(x, y[:, :2])", 5, "AxisAlignmentMismatch", "axis 1 of b is K = 3 (K = 3 by axis 1 of a)", "agree"),
    ("z = f(x, y, L=3)", 13, "InvalidAttribute", "f has no size variable 'L'", "by place"),
    ("z = f(x, y, MM=3)", 13, "InvalidAttribute", "no size variable 'MM'", "did you mean 'M'"),
    ("z = f(x, y, M=x)", 15, "InvalidAttribute", "a size is not a tensor", "an integer"),
    ("update(x, y)", 8, "InvalidAttribute", "'x' is not a mutable input", "mut x"),
    ("update(z, y)", 8, "UnknownName", "only an input", "mut"),
    ("updaet(x, y)", 1, "UnknownOp", "the result of updaet is not used", "did you mean 'update'"),
    ("softmax(x, 1)", 1, "UnknownOp", "the result of softmax is not used", "y = softmax"),
    ("assume(N)", 1, "InvalidAttribute", "assume has 1 arguments", "assume(N, 2*M)"),
    ("assume(M, 3)", 8, "UnboundSymbol", "'M' is not a size variable of main", "graph<M=1>"),
    ("z = fused(x, y) { x + w }", 23, "UnknownName", "nothing is called 'w'", "assign"),
    ("z = fused(x) { x + y }", 20, "UnknownName", "not an input of this fused form", "(y, …)"),
    ("z = fused(x + y) { x }", 13, "InvalidAttribute", "inputs of fused are names", "assign"),
    ("z = fused(x) { x.softmax(1) }", 18, "InvalidAttribute", "softmax is not elementwise", "before"),
    ("z = fused(x, y) { x @ y.transpose() }", 25, "InvalidAttribute", "not elementwise", "before"),
    ("z = fused(x, axis=0) { x }", 14, "InvalidAttribute", "fused has no keyword 'axis'", "leave it out"),
    ("z = fused_reduce(x, axes=0) { x }", 21, "InvalidAttribute", "no keyword 'axes'", "did you mean 'axis'"),
    ("z = fused_reduce(x, op=sun) { x }", 24, "InvalidAttribute", "no op 'sun'", "op=sum"),
    ("z = fused_reduce(x, axis=1.5) { x }", 26, "InvalidAttribute", "axis of fused_reduce is an integer", "axis=0"),
    ("z = fused_cumulative(x, axis=5) { x }", 5, "AxisOutOfRange", "axis 5", "0..1"),
    ("z = constant(f32[2], [1, 2, 3])", 22, "InputMismatch", "3 items where the type has 2", "one item per element"),
    ("z = constant(i8[1], [300])", 22, "InputMismatch", "i8 is not the number 300", "i8"),
    ("z = constant(i32[1], [1.5])", 23, "InputMismatch", "i32 is not the number 1.5", "i32"),
    ("z = constant(f32[N], [1])", 18, "InvalidSymbol", "sizes of a constant are numbers", "integers"),
    ('z = constant(f32[3], "ww")', 22, "UnknownName", "no array is called 'ww'", "did you mean 'w'"),
    ('z = constant(f32[4], "w")', 22, "InputMismatch", "'w' is f32[3], not f32[4]", "declare"),
    ('z = constant(f16[3], "w")', 22, "InputMismatch", "'w' is f32[3], not f16[3]", "declare"),
    ("z = constant(f32[2])", 5, "InvalidAttribute", "a constant has a type", "constant(f32[2], [1, 2])"),
    ('z = constant(f32[3], "w", role="weight")', 27, "InvalidAttribute", "a role", "param"),
    ("z = x.tile(2, 3)", 7, "AxisOutOfRange", "axis 2 of a tensor of rank 2", "0..1"),
    ("z = x.view_expr([10], idy0 + 1)", 23, "UnknownName", "nothing is called 'idy0'", "did you mean 'idx0'"),
    ("z = if_else(x, f, f, x, y)", 5, "UnsupportedDType", "the condition of if", "rank-0 bool"),
    ("z = if_else(x.sum() > 0.0, f, g, x, y)", 31, "UnknownName", "nothing is called 'g'", "assign"),
    ("z = x.matmul(y)", 7, "AxisAlignmentMismatch", "matmul, contracted axis", "reshape"),
    ("z = x.sum().sqrt().foo", 23, "ParseError", "'(' is expected", ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "column", "kind", "why", "suggestion"), BODY, ids=[b[0] for b in BODY])
def test_a_fault_of_a_statement(line: str, column: int | None, kind: str, why: str, suggestion: str) -> None:
    """The statement stands on line 4 of the text; what follows it is right."""
    text = CALLEE + PAIR + MAIN + line + "\nreturn x }"
    if column is None:
        tt.parse(text)
        return
    (found,) = faults(text)
    row = 5 if kind == "ParseError" and line.endswith("foo") else 4
    assert (found.kind, found.at) == (kind, f"m.harp:{row}:{column if row == 4 else 1}"), str(found)
    assert why in found.why, found.why
    assert suggestion in found.suggestion, found.suggestion
    assert found.excerpt.startswith(f"{row:>5} | ")


WHOLE = [
    # a text; place; kind; words of why; words of the suggestion
    ("graph main(x: f32[N]) -> f32[N] { return x }", "1:19", "UnboundSymbol", "'N' is not a size variable", "graph<N=1> main"),
    ("graph<Rows=1> main(x: f32[Row]) -> f32[Rows] { return x }", "1:27", "UnboundSymbol", "'Row'", "did you mean 'Rows'"),
    ("graph main(x: f33[2]) -> f32[2] { return x }", "1:15", "UnsupportedDType", "'f33' is not a dtype", "did you mean 'f32'"),
    ("graph main(x: fp32[2]) -> f32[2] { return x }", "1:15", "UnsupportedDType", "'fp32'", "did you mean 'f32'"),
    ("graph main(x: f32[-2]) -> f32[2] { return x }", "1:19", "InvalidSymbol", "a size is -2", "0 or more"),
    ("graph main(x: f32[2.5]) -> f32[2] { return x }", "1:19", "InvalidSymbol", "a size is not the number 2.5", "an integer"),
    ("graph<N=-1> main(x: f32[N]) -> f32[N] { return x }", "1:7", "InvalidSymbol", "default of N is -1", "0 or more"),
    ("graph<i0=1> main(x: f32[i0]) -> f32[i0] { return x }", "1:7", "InvalidSymbol", "'i0' cannot name a size", "i0_"),
    ("graph<idx0=1> main(x: f32[idx0]) -> f32[idx0] { return x }", "1:7", "InvalidSymbol", "'idx0' cannot", "idx0_"),
    ("graph<N=1, N=2> main(x: f32[N]) -> f32[N] { return x }", "1:12", "DuplicateId", "declared twice", "keep one"),
    ("graph<x=1> main(x: f32[3]) -> f32[3] { return x }", "1:17", "DuplicateId", "'x' is a size variable", "x_"),
    ("graph main(x: f32[3], x: f32[3]) -> f32[3] { return x }", "1:23", "DuplicateId", "two inputs are called 'x'", "x_2"),
    ("graph main(mtu x: f32[3]) -> f32[3] { return x }", "1:12", "InvalidAttribute", "'mtu' is not a kind of input", "'mut'"),
    ("graph main(mut mut x: f32[3]) -> f32[3] { return x }", "1:16", "InvalidAttribute", "another word says", "keep one"),
    ("graph main(x: f32[3]) -> (x: f32[3]) { return x }", "1:27", "DuplicateId", "'x' is already an input or output", "another"),
    ("graph main(x: f32[3]) -> f32[3] { y = x }", "1:41", "MissingReturn", "has no return; it declares 1 result", "return y"),
    ("graph main(x: f32[3]) -> (a: f32[3], b: f32[3]) { y = x }", "1:57", "MissingReturn", "2 results", "return a, b"),
    ("graph main(x: f32[3]) -> f32[3] { return x, x }", "1:35", "ResultCount", "2 values for 1 declared result", "output"),
    ("graph main(x: f32[3]) -> (a: f32[3], b: f32[3]) { return x }", "1:51", "ResultCount", "1 value for 2", "a, b"),
    ("graph main(x: f32[3]) -> f32[3] { return x return x }", "1:44", "ResultCount", "already returns on line 1", "keep one"),
    ("graph main(x: f32[3]) -> i32[3] { return x }", "1:42", "DTypeMismatch", "declared i32, the value is f32", "cast(i32)"),
    ("graph main(x: f32[3]) -> f32[4] { return x }", "1:42", "AxisAlignmentMismatch", "declared [4], the value has shape [3]", "f32[3]"),
    ("graph main(x: f32[3]) -> f32[] { return x }", "1:41", "AxisAlignmentMismatch", "declared []", "declare f32[3]"),
    ("graph main(x: f32[3]) -> f32[3] { return 1.0 }", "1:42", "AxisAlignmentMismatch", "the value has shape []", "f32[]"),
    ("graph Main(x: f32[3]) -> f32[3] { return x }", "1:7", "NoMain", "no graph is called main", "rename Main to main"),
    ("graph f(x: f32[3]) -> f32[3] { return x }", "1:7", "NoMain", "no graph is called main", "name one graph main"),
    ("", "1:1", "NoMain", "no graph is called main", "name one graph main"),
    ("graph main() -> f32[] { return 1.0 }\ngraph main() -> f32[] { return 1.0 }", "2:7", "DuplicateId", "on line 1", "main_2"),
    ("graph setup() -> f32[] { return 1.0 }\ngraph main() -> f32[] { return 1.0 }", "1:7", "DuplicateId", "of the compiler's own", "setup_2"),
    ("graph main(x: f32[]) -> f32[] { return main(x) }", "1:40", "RecursionDepth", "main -> main: the calls never end; graphs call each other at most 10 deep", "loop"),
    ("graph main(x: f32[2]) -> f32[] { y = exp(1.0) z = y.isnan() return x[0] }", "1:38", "UnknownDType", "nothing decides the dtype", "constant(v, f32)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "at", "kind", "why", "suggestion"), WHOLE, ids=[w[0][:60] for w in WHOLE])
def test_a_fault_of_a_graph(text: str, at: str, kind: str, why: str, suggestion: str) -> None:
    (found,) = faults(text)
    assert (found.kind, found.at) == (kind, f"m.harp:{at}"), str(found)
    assert why in found.why and suggestion in found.suggestion, str(found)


def test_all_faults_of_all_graphs_are_reported_in_order_and_each_once() -> None:
    text = """graph unused(x: f32[N]) -> f32[3] {
    a = x + 1.0
    return nothing
}
graph main(x: f32[3]) -> f32[3] {
    a = foo(x)
    b = a + 1.0
    c = bar(b) + baz(x)
    d = unused(x) + c
    return d + qux
}
"""
    found = [(d.kind, d.at) for d in faults(text)]
    assert found == [
        ("UnboundSymbol", "m.harp:1:21"),
        ("UnknownName", "m.harp:3:12"),
        ("UnknownOp", "m.harp:6:9"),
        ("UnknownOp", "m.harp:8:9"),
    ]


def test_chains_of_more_than_ten_graphs_are_refused_at_the_call() -> None:
    def chain(n: int) -> str:
        calls = "".join(f"graph g{k}(x: f32[]) -> f32[] {{ return g{k + 1}(x) }}\n" for k in range(2, n))
        return f"{calls}graph g{n}(x: f32[]) -> f32[] {{ return x + 1.0 }}\ngraph main(x: f32[]) -> f32[] {{ return g2(x) }}"

    tt.parse(chain(10))
    (found,) = faults(chain(11))
    assert found.kind == "RecursionDepth" and "more than 10 deep" in found.why and "main -> g2 -> g3" in found.why
    assert found.at == "m.harp:11:40"


def test_a_variable_with_the_name_of_a_graph_calls_nothing() -> None:
    module = tt.parse(
        "graph a(x: f32[]) -> f32[] { b = x * 2.0 return b }"
        "graph b(x: f32[]) -> f32[] { return a(x) }"
        "graph main(x: f32[], a: f32[]) -> f32[] { b = b(x) return b + a }"
    )
    assert tt.compile(module, target="reference")(x=np.float32(3), a=np.float32(5))["output"] == 11


def test_circles_show_the_chain_of_calls() -> None:
    text = """graph ping(x: f32[]) -> f32[] { return pong(x) }
graph pong(x: f32[]) -> f32[] { return ping(x) }
graph main(x: f32[]) -> f32[] { return ping(x) }"""
    (found,) = faults(text)
    assert found.kind == "RecursionDepth" and "ping -> pong -> ping" in found.why and found.at == "m.harp:2:40"


def test_sizes_that_cannot_be_compared_are_compared_at_the_call() -> None:
    module = tt.parse("graph<N=4, M=4> main(x: f32[N], y: f32[M]) -> f32[M] { return x }", name="m.harp")
    (assumed,) = module.main.signature.assumptions
    assert (str(assumed.lhs), str(assumed.rhs), assumed.at) == ("N", "M", "m.harp:1:63")
    four, five = np.zeros(4, np.float32), np.zeros(5, np.float32)
    assert tt.compile(module)(x=four, y=four)["output"].shape == (4,)
    with pytest.raises(TatamiError, match="E1304"):
        tt.compile(module)(x=five, y=four)


def test_a_size_that_no_input_has_is_decided_by_the_comparison() -> None:
    f = tt.compile(tt.parse("graph<N=4, M=4> main(x: f32[N]) -> f32[M] { return x }"))
    for n in (4, 5):
        assert f(x=np.zeros(n, np.float32))["output"].shape == (n,)


def test_a_conflict_of_two_arguments_names_both() -> None:
    text = CALLEE + "graph<A=2, B=2> main(x: f32[A, 3], y: f32[A + 1, 3]) -> f32[A, 3] { return f(x, y) }"
    (found,) = faults(text)
    assert found.kind == "AxisAlignmentMismatch" and "M = A by axis 0 of a), the operand there has A + 1" in found.why


def test_the_archive_beside_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.harp"
    path.write_text('graph main(x: f32[2]) -> f32[2] { return x * constant(f32[2], "w") }')
    assert "no array is called 'w'" in check(path)
    np.savez(tmp_path / "m.npz", w=np.array([3, 4], np.float32))
    assert check(path) == ""
    np.savez(tmp_path / "m.npz", w=np.array([object()], dtype=object))
    assert "FileUnreadable at m.harp:1:63" in check(path)
    (tmp_path / "m.npz").write_bytes(b"no archive")
    assert "m.npz cannot be read" in check(path)
    np.savez(tmp_path / "m.npz", ww=np.array([3, 4], np.float32))
    assert "did you mean 'ww'" in check(path)


def test_an_archive_that_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "m.harp"
    path.write_text('graph main(x: f32[2]) -> f32[2] { return x * constant(f32[2], "w") }')
    os.mkfifo(tmp_path / "m.npz")
    assert "m.npz cannot be read: it is not a regular file" in check(path)
    (tmp_path / "m.npz").unlink()
    (tmp_path / "m.npz").symlink_to("/dev/zero")
    assert "m.npz cannot be read: it is not a regular file" in check(path)


def test_an_archive_of_another_type_is_refused_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of 256 MiB in 256 KiB: nothing of it is unpacked."""
    monkeypatch.setattr(ArrayArchive, "read", lambda *_: 1 // 0)
    path = tmp_path / "m.harp"
    path.write_text('graph main(x: f32[2]) -> f32[2] { return x * constant(f32[2], "w") }')
    np.savez_compressed(tmp_path / "m.npz", w=np.zeros(64 << 20, np.float32))
    assert "'w' is f32[67108864], not f32[2]" in check(path)
    np.savez_compressed(tmp_path / "m.npz", w=np.zeros(2, "S9999999"))
    assert "not f32[2]" in check(path)


def check(path: Path) -> str:
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == bool(result.stderr) and "Traceback" not in result.stderr
    return result.stderr


def test_the_page_of_the_language_shows_the_faults_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
    shown = re.search(r"    (E1609.*?)\n    +1 \| (.*?)\n", page)
    assert shown is not None
    (found,) = faults(shown[2])
    assert shown[1].replace("model.harp", "m.harp") == str(found).split("\n")[0]


def test_every_kind_of_fault_is_in_the_table_of_the_manual() -> None:
    page = (Path(__file__).parents[2] / "docs" / "diagnostics.md").read_text()
    table = page.split("## Faults of a .harp text")[1]
    listed = set(re.findall(r"^\| [^|]+ \| (\w+) \| ", table, re.M)) - {"kind"}
    raised = {b[2] for b in BODY if b[1] is not None} | {w[2] for w in WHOLE} | {"InputTooLarge", "FileUnreadable", "Untrusted"}
    assert raised == listed


def test_a_result_whose_size_data_decide_has_this_size() -> None:
    text = "graph<M=1> main(x: f32[4]) -> f32[{}] {{ i = x.nonzero(K) return x.take(i.reshape([K])) }}"
    (found,) = faults(text.format("M"))
    assert (found.kind, found.at) == ("AxisAlignmentMismatch", "m.harp:1:66") and "declare f32[K]" in found.suggestion
    y = tt.compile(tt.parse(text.format("K")))(x=np.array([0, 1, 0, 2], np.float32))["output"]
    assert y.tolist() == [1, 2]
