"""Custom kernels (G-26, G-27): formulas between ordinary operations, against numpy, in every form of the program."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tatami as tt
from tatami.api import CompiledFunction
from tatami.core.diagnostic import TatamiError
from tatami.core.document import document_text
from tatami.dump import to_document
from tatami.frontend.graph import Graph

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
    document = json.loads(document_text(to_document("frontend", between().module(), tt.api.resolve_target("cpu"))))
    x = f32(3, 5)
    close(tt.compile(document)(x=x)["y"], tt.compile(between())(x=x)["y"])


def test_a_formula_of_a_document_is_checked_where_it_is_read() -> None:
    text = document_text(to_document("frontend", between().module(), tt.api.resolve_target("cpu")))
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
