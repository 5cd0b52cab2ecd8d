"""Custom kernels (G-26, G-27): formulas and C bodies between ordinary operations, against numpy, in every stage."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.api import CompiledFunction
from tatami.cli import main
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.document import document_text
from tatami.frontend.graph import Graph
from tatami.report.playback import play_back
from tatami.storage.dump import to_document
from tatami.targets import resolve_target

RNG = np.random.default_rng(26)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def launches(f: CompiledFunction) -> int:
    return len(f.stages["execution"].value.main.instructions)


def kernel_text(f: CompiledFunction) -> list[str]:
    return [u.text for name, u in f.stages["c"].value.main.units.items() if name != "routines.c"]


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def between() -> Graph:
    """exp, a custom formula, tanh."""
    g = Graph("g")
    x = g.input("x", ("N", "M"), tt.fp32)
    y = g.kernel("input0 * 2 + ridx1 / shape1 - 0.5 * ridx0", x.exp())
    g.output("y", y.tanh() * 3.0)
    return g


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_formula_between_ordinary_operations_is_one_kernel(target: str) -> None:
    f = tt.compile(between(), target=target)
    for n, m in ((3, 5), (1, 1), (0, 4), (7, 0), (33, 130)):
        x = f32(n, m)
        i, _ = np.indices((n, m))
        close(f(x=x)["y"], np.tanh(np.exp(x) * 2 - 0.5 * i) * 3)
    assert target == "reference" or launches(f) == 1


def test_a_custom_reduce_takes_in_what_comes_before_and_after() -> None:
    g = Graph("g")
    x, w = g.input("x", ("N", 40), tt.fp32), g.input("w", ("N", 40), tt.fp32)
    s = g.kernel_reduce("d = input0 - input1; d * d * (1.0 + ridx1)", x.tanh(), w, op="sum", axes=[1])
    g.output("y", s.sqrt() + 1.0)
    f = tt.compile(g)
    a, b = f32(9, 40), f32(9, 40)
    close(f(x=a, w=b)["y"], np.sqrt(((np.tanh(a) - b) ** 2 * (1 + np.arange(40))).sum(1)) + 1)
    assert launches(f) == 1


def test_a_custom_scan_equals_numpy() -> None:
    g = Graph("g")
    x = g.input("x", (4, 50), tt.fp32)
    g.output("y", g.kernel_scan("abs(input0) + 1", x, op="sum", axis=1))
    x_ = f32(4, 50)
    close(tt.compile(g)(x=x_)["y"], np.cumsum(np.abs(x_) + 1, 1))


@pytest.mark.parametrize("op", ["sum", "max", "mean"])
def test_a_custom_reduce_of_a_tensor_is_the_built_in_one(op: str) -> None:
    def made(custom: bool) -> CompiledFunction:
        g = Graph("g")
        x = g.input("x", ("N", 300), tt.fp32)
        g.output("y", g.kernel_reduce("input0", x, op=op, axes=[1]) if custom else x.op(f"reduce_{op}", axes=[1]))
        return tt.compile(g)

    own, built_in = made(True), made(False)
    assert own.stages["tiny"].text == built_in.stages["tiny"].text
    assert kernel_text(own) == kernel_text(built_in)


def test_formulas_lower_to_primitives_on_every_target() -> None:
    for target in ("sm80", "sm90"):
        code = tt.api.prepare(between(), target=target).stages["cu"].main
        assert len(code.units) == 1
        assert "ridx" not in code.units[0].text and "shape1" not in code.units[0].text


def test_a_formula_in_a_subgraph_and_with_the_same_operand_twice() -> None:
    g = Graph("g")
    sub = g.subgraph("norm")
    a = sub.input("a", ("K",), tt.fp32)
    sub.output("b", sub.kernel("input0 * input1 + shape0", a, a))
    x = g.input("x", ("N",), tt.fp32)
    g.output("y", g.call(sub, g.call(sub, x)))
    x_ = f32(6)
    close(tt.compile(g)(x=x_)["y"], (x_ * x_ + 6) ** 2 + 6)


def test_a_document_with_a_formula_needs_no_trust() -> None:
    document = json.loads(document_text(to_document("frontend", between().module(), resolve_target("cpu"))))
    x = f32(3, 5)
    close(tt.compile(document)(x=x)["y"], tt.compile(between())(x=x)["y"])


def test_a_formula_of_a_document_is_checked_where_it_is_read() -> None:
    text = document_text(to_document("frontend", between().module(), resolve_target("cpu")))
    document = json.loads(text.replace("input0 * 2", "input3 * 2"))
    with pytest.raises(TatamiError) as error:
        tt.compile(document)
    (d,) = error.value.diagnostics
    assert (d.kind, d.details) == ("UnknownValue", {"line": "1", "column": "1"})
    assert "kernel" in d.at and "use input0, or pass 4 operands" in d.suggestion


def test_the_text_of_a_formula_reaches_no_generated_code() -> None:
    g = Graph("g")
    x = g.input("x", (8,), tt.fp32)
    g.output("y", g.kernel("secret_name = input0 * 2; secret_name + 1 // secret remark", x))
    f = tt.compile(g)
    assert not any("secret" in text or "input0" in text for text in kernel_text(f))


# -- C bodies ------------------------------------------------------------------------------------------

ROW_SUMS = """
// the sum of every row of input0 * input1, times "shape0"
for (ridx0 = 0; ridx0 < shape0; ++ridx0) {
  float total = 0;
  for (ridx1 = 0; ridx1 < input0_shape1; ++ridx1)
    total += input0[ridx0 * input0_shape1 + ridx1] * input1[ridx0 * input1_shape1 + ridx1];
  output[ridx0] = total * shape0;
}
"""


def row_sums(*, same: bool = False, meaning: bool = True) -> Graph:
    g = Graph("g")
    x = g.input("x", ("N", "M"), tt.fp32)
    h = x.exp()
    other = h if same else x.tanh()
    say = (lambda a, b: (a * b).sum(1) * a.shape[0]) if meaning else None
    y = g.kernel_body(ROW_SUMS, h, other, outputs=[(tt.fp32, ("N",))], meaning=say)
    g.output("y", y + 1.0)
    return g


def refused(action: Any) -> Diagnostic:
    with pytest.raises(TatamiError) as error:
        action()
    (d,) = error.value.diagnostics
    return d


def document_of(g: Graph, stage: str = "frontend", target: str = "cpu") -> dict[str, Any]:
    from tests.api.test_diagnostics import stage_of

    return stage_of(g, stage, target)


SHAPES = ((3, 5), (17, 4), (1, 1), (0, 4), (4, 0))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_c_body_between_ordinary_operations_equals_numpy(target: str) -> None:
    f = tt.compile(row_sums(), target=target)
    for n, m in SHAPES:
        x = f32(n, m)
        close(f(x=x)["y"], (np.exp(x) * np.tanh(x)).sum(1) * n + 1)


def test_a_c_body_is_one_opaque_region_and_no_placeholder_is_left() -> None:
    f = tt.compile(row_sums())
    assert [i.opaque is not None for i in f.stages["region"].value.main.body].count(True) == 1
    (text,) = [u.text for u in f.stages["c"].value.main.units.values() if u.user]
    code = re.sub(r"//[^\n]*", "", text)
    assert not re.search(r"\b(input|output|shape|ridx)\d*(_shape\d+)?\b", code)
    assert '// the sum of every row of input0 * input1, times "shape0"' in text


def test_an_operand_given_twice_is_taken_twice() -> None:
    f = tt.compile(row_sums(same=True))
    x = f32(5, 7)
    close(f(x=x)["y"], (np.exp(x) ** 2).sum(1) * 5 + 1)


def test_every_stage_agrees_on_a_c_body() -> None:
    g = row_sums(same=True)
    compilation = tt.api.prepare(g)
    x = f32(4, 6)
    result = play_back(compilation.values(), {"x": x}, {"N": 4, "M": 6}, tt.api.build(compilation)(x=x))
    assert [r.stage for r in result.results if not r.ok] == []
    assert {"frontend", "tiny", "region", "kernels"} <= {r.stage for r in result.results}


def test_several_results_other_dtypes_and_no_operand() -> None:
    g = Graph("g")
    x = g.input("x", ("N",), tt.i64)
    body = "for (ridx0 = 0; ridx0 < shape0; ++ridx0) { output0[ridx0] = input0[ridx0] > 2; output1[0] += input0[ridx0]; }"
    above, total = g.kernel_body(
        "output1[0] = 0;" + body,
        x,
        outputs=[(tt.bool, ("N",)), (tt.i64, (1,))],
        meaning=lambda a: (a > 2, a.sum(keepdims=True)),
    )
    count = g.kernel_body("output[0] = 7;", outputs=[(tt.fp64, ())], meaning=lambda: np.array(7.0))
    g.output("above", ~above)
    g.output("total", total)
    g.output("count", count)
    for target in ("cpu", "reference"):
        got = tt.compile(g, target=target)(x=np.array([1, 5, 3], np.int64))
        assert got["above"].tolist() == [True, False, False]
        assert (got["total"].tolist(), got["count"].tolist()) == ([9], 7.0)


def test_a_preamble_holds_includes_and_functions() -> None:
    g = Graph("g")
    x = g.input("x", (4,), tt.fp32)
    pre = "#include <float.h>\nstatic float twice(float x) { return 2 * x; }"
    body = "for (int64_t ridx0 = 0; ridx0 < shape0; ++ridx0) output[ridx0] = twice(input0[ridx0]) + FLT_RADIX;"
    g.output("y", g.kernel_body(body, x, outputs=[(tt.fp32, (4,))], preamble=pre, meaning=lambda a: 2 * a + 2))
    x_ = f32(4)
    close(tt.compile(g)(x=x_)["y"], 2 * x_ + 2)


def test_equal_bodies_are_one_unit_and_a_subgraph_may_hold_one() -> None:
    g = Graph("g")
    sub = g.subgraph("twice")
    body = "for (ridx0 = 0; ridx0 < shape0; ++ridx0) output[ridx0] = input0[ridx0] * 2;"

    def twice(graph: Graph, x: Any) -> Any:
        return graph.kernel_body(body, x, outputs=[(tt.fp32, x.shape)], meaning=lambda a: a * 2)

    sub.output("b", twice(sub, sub.input("a", ("K",), tt.fp32)))
    x = g.input("x", ("N",), tt.fp32)
    g.output("y", twice(g, g.call(sub, twice(g, x))))
    f = tt.compile(g)
    assert sum(u.user for u in f.stages["c"].value.main.units.values()) == 1
    x_ = f32(5)
    close(f(x=x_)["y"], x_ * 8)


def test_a_c_body_that_does_not_compile_names_the_users_own_line() -> None:
    g = Graph("g")
    x = g.input("x", (4,), tt.fp32)
    body = "int k = 0;\n\nfor (; k < shape0; ++k)\n  output[k] = squareroot(input0[k]);\noutput[0] = input0;"
    g.output("y", g.kernel_body(body, x.exp(), outputs=[(tt.fp32, (4,))], meaning=None))
    d = refused(lambda: tt.compile(g))
    assert (d.kind, d.details["line"]) == ("CompilerFailed", "4")
    assert "test_custom_kernel.py" in d.at and "body line 4" in d.at
    assert "squareroot" in d.why and "output[k] = squareroot(input0[k]);" in d.why
    assert "tatami_" not in d.why and "line 5" in d.why


def test_a_body_is_code_and_its_documents_need_trust() -> None:
    x = f32(3, 5)
    want = tt.compile(row_sums())(x=x)["y"]
    for stage in ("frontend", "tiny@imported", "tiny", "region@explicit", "region", "loop"):
        document = document_of(row_sums(), stage)
        d = refused(lambda document=document: tt.compile(document))
        assert d.kind == "Untrusted" and "trust=True" in d.suggestion
        close(tt.compile(document, trust=True)(x=x)["y"], want)


def test_a_folder_of_a_dump_needs_trust_too(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(document_of(row_sums())))
    run = CliRunner()
    refusal = run.invoke(main, ["run", str(path), "-D", "N=2", "-D", "M=3"])
    assert refusal.exit_code == 1 and refusal.stderr.count("E1610 Untrusted") == 1
    made = run.invoke(main, ["compile", str(path), "--trust", "--dump=all", "-o", str(tmp_path / "out")])
    assert made.exit_code == 0, made.output + made.stderr
    assert run.invoke(main, ["run", str(tmp_path / "out")]).exit_code == 1
    assert run.invoke(main, ["run", str(tmp_path / "out"), "--trust"]).exit_code == 0


def test_what_has_no_meaning_runs_and_is_not_said_to_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(document_of(row_sums(meaning=False))))
    run = CliRunner()
    assert run.invoke(main, ["run", str(path), "--trust"]).exit_code == 0
    checked = run.invoke(main, ["run", str(path), "--trust", "--check"])
    assert checked.exit_code == 1 and "agrees" not in checked.output
    assert "E1807 MeaningMissing" in checked.stderr and "cannot be checked" in checked.stderr
    made = run.invoke(main, ["compile", str(path), "--trust", "-o", str(tmp_path / "out")])
    assert made.exit_code == 0 and "no stand-alone main" in made.output


def test_a_target_without_a_body_for_it_says_what_to_give() -> None:
    d = refused(lambda: tt.api.prepare(row_sums(), target="sm80").stages["cu"])
    assert (d.kind, "cuda=" in d.suggestion, "no CUDA body" in d.why) == ("UnsupportedModel", True, True)
    g = Graph("g")
    x = g.input("x", (4,), tt.fp32)
    cuda = "output[ridx0] = input0[ridx0] * 2;"
    g.output("y", g.kernel_body(None, x, outputs=[(tt.fp32, (4,))], cuda=cuda, meaning=lambda a: a * 2))
    d = refused(lambda: tt.compile(g))
    assert (d.kind, "c=" in d.suggestion, "no C body" in d.why) == ("UnsupportedModel", True, True)
    assert len(tt.api.prepare(g, target="sm90").stages["cu"].main.units) == 1
    for stage in ("tiny", "gpu"):
        document = document_of(g, stage, "sm80")
        assert refused(lambda document=document: tt.api.prepare(document, target="sm80")).kind == "Untrusted"
        again = tt.api.prepare(document, target="sm80", trust=True)
        assert again.stages["cu"].main == tt.api.prepare(g, target="sm80").stages["cu"].main


def test_a_wrong_meaning_is_one_diagnostic() -> None:
    def with_meaning(meaning: Any) -> Diagnostic:
        g = Graph("g")
        x = g.input("x", (4,), tt.fp32)
        g.output("y", g.kernel_body("output[0] = 1;", x, outputs=[(tt.fp32, (4,))], meaning=meaning))
        return refused(lambda: tt.compile(g, target="reference")(x=f32(4)))

    assert "ZeroDivisionError" in with_meaning(lambda a: 1 // 0).why
    assert "2 results" in with_meaning(lambda a: (a, a)).why
    assert with_meaning(lambda a: a[:2]).kind == "AxisAlignmentMismatch"
    assert with_meaning(lambda a: a[None]).kind == "HostFault"


def test_a_body_is_checked_when_the_node_is_made() -> None:
    g = Graph("g")
    x = g.input("x", (4,), tt.fp32)
    made: list[tuple[dict[str, Any], str]] = [
        ({"c": "output[0] = input3[0];"}, "UnknownValue"),
        ({"c": "int tatami_x;"}, "InvalidAttribute"),
        ({"c": None}, "InvalidAttribute"),
        ({"c": "x", "outputs": []}, "InvalidAttribute"),
        ({"c": "x", "outputs": [(tt.fp32, (-1,))]}, "InvalidSymbol"),
        ({"c": "x", "outputs": [("float31", (1,))]}, "UnsupportedDType"),
        ({"c": "x", "outputs": [tt.fp32]}, "InvalidAttribute"),
        ({"c": "x", "outputs": 5}, "InvalidAttribute"),
        ({"c": "x", "outputs": [(tt.fp32, (1,), 2)]}, "InvalidAttribute"),
        ({"c": "x", "meaning": 3}, "InvalidAttribute"),
        ({"c": 3}, "InvalidAttribute"),
    ]
    for given, kind in made:
        d = refused(
            lambda given=given: g.kernel_body(
                given["c"], x, outputs=given.get("outputs", [(tt.fp32, (4,))]), meaning=given.get("meaning")
            )
        )
        assert d.kind == kind and "test_custom_kernel.py" in d.at, d


def test_a_call_of_a_users_routine_passes_what_it_takes() -> None:
    for change in ("sizes", "inputs", "dtype"):
        document = document_of(row_sums(), "loop")
        (kernel,) = [k for k in document["programs"]["main"]["kernels"].values() if "user" in k]
        if change == "dtype":
            kernel["user"]["inputs"][0]["dtype"] = "fp64"
        else:
            kernel["user"][change].pop()
        d = refused(lambda document=document: tt.api.prepare(document, trust=True))
        assert d.kind == "InvalidExecution" and "takes" in d.why


def test_a_formula_in_a_harp_text() -> None:
    f = tt.compile(
        tt.parse(
            """graph<N=3, M=4> main(x: f32[N, M]) -> (y: f32[N]) {
              d = kernel(exp(x), expression="input0 * 2 + ridx1")
              y = kernel_reduce(x, d, expression="input0 * input1", op="sum", axes=[1])
              return y
            }"""
        )
    )
    x = f32(3, 4)
    close(f(x=x)["y"], (x * (np.exp(x) * 2 + np.arange(4))).sum(1))
    assert launches(f) == 1
