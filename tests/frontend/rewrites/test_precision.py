"""The precision option."""

import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.rewrites.precision import lower_precision
from tatami.frontend.run import run
from tatami.frontend.verify import verify


def module():
    g = Graph()
    a, b, c = g.input("a", (8, 16), DType.fp32), g.input("b", (16, 4), DType.fp32), g.input("c", (4,), DType.fp32)
    g.output("y", a.gemm(b, c).relu() @ g.constant(np.ones((4, 4), np.float32)))
    return g.module()


@pytest.mark.parametrize(("precision", "eps"), [("bf16", 1e-2), ("fp16", 1e-3), ("tf32", 1e-3)])
def test_contractions_multiply_narrow(precision, eps):
    m = lower_precision(module(), precision)
    assert verify(m) == []
    rng = np.random.default_rng(1)
    args = {k: rng.standard_normal(s).astype(np.float32) for k, s in (("a", (8, 16)), ("b", (16, 4)), ("c", (4,)))}
    exact, got = run(module(), args)["y"], run(m, args)["y"]
    assert got.dtype == np.float32
    assert 0 < np.abs(got - exact).max() < eps * np.abs(exact).max() * 4


def test_unknown_precision_is_refused():
    with pytest.raises(TatamiError):
        lower_precision(module(), "fp8")
