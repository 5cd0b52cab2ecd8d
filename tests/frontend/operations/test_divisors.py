"""Sizes that divide, and views by expressions that leave what they read: one diagnostic, never an end of the process."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr

DIVIDED = {
    "declared": "graph<N=4> main(x: f32[N, 4]) -> f32[4/N] { return x.sum().expand([4/N]) }",
    "expanded": "graph<N=4> main(x: f32[N, 4]) -> f32[] { y = x.sum().expand([12 / N]) return y.sum() }",
    "value": "graph<N=4> main(x: f32[N, 4]) -> f32[] { return size(12 / N).cast(f32) + x.sum() }",
    "remainder": "graph<N=4> main(x: f32[N, 4]) -> f32[] { return size(12 % N).cast(f32) + x.sum() }",
    "view": "graph<N=4> main(x: f32[N, 4]) -> f32[3] { return x.sum(0).view_expr([3], idx0 / N) }",
}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", DIVIDED)
def test_a_size_that_divides_is_not_0(name: str, target: str) -> None:
    f = tt.compile(tt.parse(DIVIDED[name]), target=target)
    assert np.isfinite(f(x=np.ones((2, 4), np.float32))["output"]).all()
    with pytest.raises(TatamiError) as caught:
        f(x=np.ones((0, 4), np.float32))
    fault = caught.value.diagnostics[0]
    assert (fault.kind, fault.why) == ("AxisAlignmentMismatch", "N = 0 where at least 1 is needed")


def test_a_default_of_0_that_divides_is_one_diagnostic() -> None:
    text = "graph<N=0> main(x: f32[N, 4]) -> f32[] { y = x.sum().expand([12 / N]) return y.sum() }"
    with pytest.raises(TatamiError) as caught:
        tt.compile(tt.parse(text))
    assert (caught.value.diagnostics[0].kind, caught.value.diagnostics[0].at) == ("InvalidSymbol", "12//N")


def test_a_divisor_that_is_never_0_records_nothing() -> None:
    g = tt.Graph("g")
    x = g.input("x", ("N", 4), tt.fp32)
    g.output("y", x.sum().expand((expr("12 // (N + 1)"),)))
    assert g.graph().signature.assumptions == ()
    g.output("z", x.sum().expand((expr("12 // N"),)))
    assert [(str(e.lhs), str(e.rhs)) for e in g.graph().signature.assumptions] == [("min(1, N)", "1")]


def test_dividing_sizes_by_0_is_a_diagnostic() -> None:
    with pytest.raises(TatamiError, match="N is 0"):
        evaluate(expr("3 + 4 // N"), {"N": 0})


@pytest.mark.parametrize("at", ["i0 + 3", "i0 - 1", "8 - i0", "2*i0"])
def test_a_view_that_reads_outside_is_refused(at: str) -> None:
    g = tt.Graph("g")
    x = g.input("x", (4,), tt.fp32)
    with pytest.raises(TatamiError) as caught:
        x.op("view", shape=(3,), linear=expr(at))
    assert caught.value.diagnostics[0].kind == "AxisOutOfRange"
    with pytest.raises(TatamiError, match="i1 in a result of rank 1"):
        x.op("view", shape=(3,), linear=expr("i1"))


def test_a_second_update_and_a_graph_of_another_module_say_what_to_write() -> None:
    g = tt.Graph("g")
    x = g.input("x", (4,), tt.fp32, mutability="mutable")
    g.update(x, x + 1.0)
    with pytest.raises(TatamiError, match="'x' is updated already"):
        g.update(x, x * 2.0)
    with pytest.raises(TatamiError, match=r"g\.subgraph\('norm'\)"):
        g.call(tt.Graph("norm"), x)
