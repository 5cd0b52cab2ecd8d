"""The `.harp` rows of `docs/design/graph.md`: sizes, results, the two examples of the specification, recursion, reserved
words, fused forms, views by expressions."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tatami as tt
from tatami.api import compile, prepare
from tatami.cli import main
from tatami.compilation import Compilation
from tatami.core.diagnostic import TatamiError
from tatami.harp.decompile import decompile
from tatami.report.explain import kernel_origins

RELU = """graph<B=1, N=1> relu(x: f32[B, N]) -> (y: f32[B, N]) {
    zero = 0.0
    result = max(x, zero)
    return result
}

graph<B=1, D=1> main(input: f32[B, D]) -> (output: f32[B, D]) {
    result = relu(input)
    return result
}
"""
MULTI = """graph<N=1> multi_output(x: f32[N]) -> (a: f32[N], b: f32[N]) {
    r1 = x + 1.0
    r2 = x * 2.0
    return r1, r2
}

graph main(input: f32[10]) -> (out1: f32[10], out2: f32[10]) {
    (a, b) = multi_output(input)
    return a, b
}
"""
RESERVED = ("graph", "return", "fused", "fused_reduce", "fused_cumulative", "true", "false")
RNG = np.random.default_rng(0)


@pytest.fixture
def harp(tmp_path: Path) -> Path:
    return tmp_path / "m.harp"


def tatami(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert "Traceback" not in result.output + result.stderr
    return result


def one_fault(path: Path, text: str) -> str:
    """The one diagnostic of `tatami check`, which exits with 1."""
    path.write_text(text)
    result = tatami("check", str(path))
    assert result.exit_code == 1
    assert len(re.findall(r"^E\d{4} \w+ at m\.harp:\d+:\d+: ", result.stderr, re.M)) == 1, result.stderr
    assert len(re.findall(r"^E\d{4}", result.stderr, re.M)) == 1
    return result.stderr


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def kernels(compilation: Compilation) -> int:
    return len(compilation.stages["execution"].main.instructions)


# -- G-41: size variables ------------------------------------------------------------------------------
def test_an_undeclared_size_has_a_line_and_a_column(harp: Path) -> None:
    said = one_fault(harp, "// sizes\ngraph main(x: f32[N]) -> f32[N] {\n    return x\n}\n")
    assert "UnboundSymbol at m.harp:2:19: 'N' is not a size variable of main" in said
    assert "    2 | graph main(x: f32[N]) -> f32[N] {\n      |                   ^\n" in said
    assert "declare it: graph<N=1> main(…)" in said


def test_a_default_applies_until_an_input_or_an_option_decides(harp: Path) -> None:
    harp.write_text("graph<N=5> main(x: f32[N]) -> f32[N] { return x + 1.0 }")
    assert "output: float32[5]" in tatami("run", str(harp), "--check").output
    assert "output: float32[3]" in tatami("run", str(harp), "--input", "x=shape:3", "--check").output
    assert "output: float32[2]" in tatami("run", str(harp), "-D", "N=2", "--check").output
    sums = compile(tt.parse("graph<N=5> main(x: f32[3]) -> i64[] { return size(2 * N) + 0 }"))
    assert sums(x=f32(3))["output"] == 10


# -- G-42: return and main -----------------------------------------------------------------------------
def test_a_missing_return_a_wrong_count_and_a_missing_main(harp: Path) -> None:
    said = one_fault(harp, "graph main(x: f32[3]) -> f32[3] {\n    y = x + 1.0\n}\n")
    assert "MissingReturn at m.harp:3:1" in said and "return y" in said
    said = one_fault(harp, "graph main(x: f32[3]) -> (a: f32[3], b: f32[3]) {\n    return x\n}\n")
    assert "ResultCount at m.harp:2:5: 1 value for 2 declared results" in said and "return one value for each of: a, b" in said
    said = one_fault(harp, "graph helper(x: f32[3]) -> f32[3] { return x }\n")
    assert "NoMain at m.harp:1:7" in said


def test_a_return_ends_its_graph(harp: Path) -> None:
    said = one_fault(harp, "graph main(x: f32[3]) -> (y: f32[3]) {\n    return x\n    z = x + 1.0\n}\n")
    assert "AfterReturn at m.harp:3:5: the graph returns on line 2" in said


def test_graphs_that_nothing_calls_are_checked(harp: Path) -> None:
    said = one_fault(harp, "graph spare(x: f32[3]) -> f32[3] { return y }\ngraph main(x: f32[3]) -> f32[3] { return x }\n")
    assert "UnknownName at m.harp:1:43: nothing is called 'y'" in said and "did you mean" not in said


def test_a_right_file_is_reported_as_such(harp: Path) -> None:
    harp.write_text(RELU)
    result = tatami("check", str(harp))
    assert result.exit_code == 0 and result.output.endswith("2 graphs, no faults\n")


# -- G-43: the first example -----------------------------------------------------------------------------
def test_the_relu_example_runs_at_the_callers_sizes(harp: Path) -> None:
    harp.write_text(RELU)
    result = tatami("run", str(harp), "--input", "input=shape:3x7", "--check")
    assert result.exit_code == 0
    assert "output: float32[3, 7]" in result.output and "agrees with the float64 reference" in result.output
    x = f32(3, 7)
    assert np.array_equal(compile(str(harp))(input=x)["output"], np.maximum(x, 0))
    module = tt.parse(RELU)
    assert [n.op for n in module.main.graph] == ["call"]
    assert [n.op for n in module.programs["relu"].graph] == ["constant", "max"]


# -- G-44: the second example ----------------------------------------------------------------------------
def test_the_multi_output_example_takes_its_results_apart(harp: Path) -> None:
    harp.write_text(MULTI)
    assert tatami("run", str(harp), "--check").exit_code == 0
    x = f32(10)
    out = compile(str(harp))(input=x)
    assert np.array_equal(out["out1"], x + 1) and np.array_equal(out["out2"], x * 2)


def test_a_tuple_of_another_size_is_diagnosed(harp: Path) -> None:
    said = one_fault(harp, MULTI.replace("(a, b) =", "(a, b, c) ="))
    assert "ResultCount at m.harp:8:5: 3 names for 2 results of multi_output" in said
    assert "    8 |     (a, b, c) = multi_output(input)\n      |     ^^^^^^^^^\n" in said


# -- G-45: recursion --------------------------------------------------------------------------------------
def test_a_graph_that_calls_itself_is_one_diagnostic_that_names_the_limit(harp: Path) -> None:
    said = one_fault(
        harp,
        "graph f(x: f32[3]) -> f32[3] {\n    return f(x + 1.0)\n}\ngraph main(x: f32[3]) -> f32[3] {\n    return f(x)\n}\n",
    )
    assert "RecursionDepth at m.harp:2:12: f -> f" in said and "10 deep" in said


def test_ten_graphs_deep_runs_and_eleven_do_not(harp: Path) -> None:
    def chain(n: int) -> str:
        graphs = [f"graph g{k}(x: f32[3]) -> f32[3] {{ return g{k + 1}(x) + 1.0 }}\n" for k in range(2, n)]
        return f"{''.join(graphs)}graph g{n}(x: f32[3]) -> f32[3] {{ return x + 1.0 }}\ngraph main(x: f32[3]) -> f32[3] {{ return g2(x) }}\n"

    harp.write_text(chain(10))
    assert np.array_equal(compile(str(harp))(x=np.zeros(3, np.float32))["output"], [9, 9, 9])
    assert "more than 10 deep" in one_fault(harp, chain(11))


COUNTED = """
graph f(x: f32[3], n: i32[]) -> f32[3] { return if_else(n > 0, step, stop, x, n) }
graph step(x: f32[3], n: i32[]) -> f32[3] { return f(x * 2.0 + 1.0, n - 1) }
graph stop(x: f32[3], n: i32[]) -> f32[3] { return x }
graph main(x: f32[3], n: i32[]) -> f32[3] { return f(x, n) }
"""
SHRINKING = """
graph<N> total(x: f32[N], k: i32[]) -> f32[] { return if_else(k > 0, rest, last, x, k) }
graph<N> rest(x: f32[N], k: i32[]) -> f32[] { return x[0] + total(x[1:], k - 1) }
graph<N> last(x: f32[N], k: i32[]) -> f32[] { return sum(x * 0.0, 0) }
graph main(x: f32[8], k: i32[]) -> f32[] { return total(x, k) }
"""
TWICE = """
graph fib(n: i32[]) -> i32[] { return if_else(n < 2, one, two, n) }
graph one(n: i32[]) -> i32[] { return n * 1 }
graph two(n: i32[]) -> i32[] { return fib(n - 1) + fib(n - 2) }
graph main(n: i32[]) -> i32[] { return fib(n) }
"""
RECURSIVE_TARGETS = ["reference", "cpu", "emulated-sm80"]


@pytest.mark.parametrize("target", RECURSIVE_TARGETS)
def test_a_recursion_ends_by_data(target: str) -> None:
    counted, shrinking, twice = (tt.compile(tt.parse(text), target=target) for text in (COUNTED, SHRINKING, TWICE))
    x = np.array([1, -2, 3], np.float32)
    for n in range(5):
        assert np.array_equal(counted(x=x, n=np.int32(n))["output"], 2**n * x + 2**n - 1)
        assert shrinking(x=np.arange(1, 9, dtype=np.float32), k=np.int32(n))["output"] == sum(range(1, n + 1))
    assert [int(twice(n=np.int32(n))["output"]) for n in range(6)] == [0, 1, 1, 2, 3, 5]


@pytest.mark.parametrize("target", RECURSIVE_TARGETS)
def test_a_recursion_is_cut_with_its_chain_at_a_depth_to_be_set(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = tt.compile(tt.parse(COUNTED), target=target), np.zeros(3, np.float32)
    with pytest.raises(TatamiError) as error:
        f(x=x, n=np.int32(5))
    (found,) = error.value.diagnostics
    assert found.why == "programs call each other more than 10 deep: main -> f -> step -> f -> …"
    assert "TATAMI_CALL_DEPTH" in found.suggestion
    assert np.array_equal(f(x=x, n=np.int32(4))["output"], [15, 15, 15])  # a cut call leaves the program as it was
    monkeypatch.setenv("TATAMI_CALL_DEPTH", "24")
    deeper = tt.compile(tt.parse(COUNTED), target=target)
    assert np.array_equal(deeper(x=x, n=np.int32(11))["output"], [2047] * 3)
    with pytest.raises(TatamiError, match="more than 24 deep: main -> f -> step -> f -> …"):
        deeper(x=x, n=np.int32(12))
    for wrong in ("0000000199", "0", "101", "ten", "-1"):
        monkeypatch.setenv("TATAMI_CALL_DEPTH", wrong)
        with pytest.raises(TatamiError, match="is not a depth of calls"):
            tt.parse(COUNTED)


def test_a_recursion_is_written_as_it_was_read_and_has_a_derivative() -> None:
    module = tt.parse(COUNTED)
    assert tt.parse(decompile(module)).programs.keys() == module.programs.keys()
    square = COUNTED.replace("x * 2.0 + 1.0", "x * x")
    gradient = tt.gradient(tt.parse(square), of="output", wrt=["x"])
    x = np.array([1, 2, 3], np.float32)
    for target in ("reference", "cpu"):
        f = tt.compile(gradient, target=target)
        for n in range(3):
            assert np.array_equal(f(x=x, n=np.int32(n))["x.gradient"], 2**n * x ** (2**n - 1))


def test_a_circle_that_no_data_end_is_refused() -> None:
    for text in (
        COUNTED.replace("if_else(n > 0, step, stop, x, n)", "step(x, n)"),
        COUNTED.replace("return f(x * 2.0 + 1.0, n - 1)", "return main(x, n)"),
    ):
        with pytest.raises(TatamiError, match="RecursionDepth"):
            tt.parse(text)


def test_graphs_that_call_each_other_are_promised_in_python() -> None:
    g = tt.Graph("g")
    f, step, stop = (g.subgraph(name) for name in ("f", "step", "stop"))
    inputs = [(h.input("x", ("N",), tt.fp32), h.input("n", (), tt.i32)) for h in (f, step, stop)]
    f.promise("y", ("N",), tt.fp32)
    step.output("y", step.call(f, inputs[1][0] * 2.0, inputs[1][1] - 1))
    stop.output("y", inputs[2][0] + 0.0)
    f.output("y", f.cond(inputs[0][1] > 0, step, stop, *inputs[0]))
    g.output("y", g.call(f, g.input("x", ("M",), tt.fp32), g.input("n", (), tt.i32)))
    run = tt.compile(g)
    for size in (1, 5):
        assert np.array_equal(run(x=np.ones(size, np.float32), n=np.int32(3))["y"], np.full(size, 8.0))
    h = tt.Graph("h")
    h.subgraph("k").promise("y", (3,), tt.fp32)
    h.output("y", h.call("k"))
    with pytest.raises(TatamiError, match="the promised result 'y' is not made"):
        h.module()


# -- G-46: reserved words -----------------------------------------------------------------------------------
@pytest.mark.parametrize("word", RESERVED)
def test_reserved_words_name_no_variable_and_no_graph(harp: Path, word: str) -> None:
    said = one_fault(harp, f"graph main(x: f32[3]) -> f32[3] {{ {word} = x return x }}")
    assert f"ParseError at m.harp:1:35: '{word}' is a reserved word" in said and f"'{word}_'" in said
    said = one_fault(harp, f"graph {word}(x: f32[3]) -> f32[3] {{ return x }}")
    assert f"ParseError at m.harp:1:7: '{word}' is a reserved word" in said and f"'{word}_'" in said


# -- G-47: fused forms ----------------------------------------------------------------------------------------
FUSED = {
    "fused(a, b) { -a * b.exp() + 1.0 }": ("f32[6, 8]", lambda a, b: -a * np.exp(b) + 1),
    "fused_reduce(a, b, axis=1, op=sum) { a * b * 2.0 }": ("f32[6]", lambda a, b: (a * b * 2).sum(1)),
    "fused_reduce(a, b, op=max) { a - b }": ("f32[8]", lambda a, b: (a - b).max(0)),
    "fused_cumulative(a, b, axis=0, op=sum) { a * b }": ("f32[6, 8]", lambda a, b: (a * b).cumsum(0)),
    "fused_cumulative(a, axis=1, op=prod) { 1.0 + a / 8.0 }": ("f32[6, 8]", lambda a, b: (1 + a / 8).cumprod(1)),
}


@pytest.mark.parametrize("form", FUSED)
def test_a_fused_form_is_one_kernel(harp: Path, form: str) -> None:
    shape, oracle = FUSED[form]
    harp.write_text(f"graph main(a: f32[6, 8], b: f32[6, 8]) -> {shape} {{ return {form} }}")
    assert tatami("run", str(harp), "--check").exit_code == 0
    assert kernels(prepare(str(harp))) == 1
    a, b = f32(6, 8), f32(6, 8)
    assert np.allclose(compile(str(harp))(a=a, b=b)["output"], oracle(a.astype(np.float64), b), rtol=1e-5, atol=1e-5)


# -- G-11: a view by an expression ---------------------------------------------------------------------------
def test_view_expr_rotates() -> None:
    f = compile(tt.parse("graph main(x: f32[10]) -> f32[10] { y = x.view_expr([10], (idx0 + 3) % 10) return y }"))
    x = f32(10)
    assert np.array_equal(f(x=x)["output"], np.roll(x, -3))


# -- where things came from ----------------------------------------------------------------------------------
def test_every_node_and_every_kernel_names_its_line_and_column(harp: Path) -> None:
    harp.write_text("graph main(x: f32[4, 8]) -> f32[4] {\n    y = x.exp() +\n        1.0\n    return y.sum(1)\n}\n")
    compilation = prepare(str(harp))
    origins = compilation.stages["frontend"].origins["main"]
    assert origins["y"] == ("m.harp:2:17",) and origins["exp"] == ("m.harp:2:11",)
    (kernel,) = kernel_origins(compilation)
    assert {"m.harp:2:11", "m.harp:2:17", "m.harp:4:14"} <= set(kernel.sources)
    assert "m.harp:2:11, m.harp:2:17" in tatami("explain", str(harp)).output
