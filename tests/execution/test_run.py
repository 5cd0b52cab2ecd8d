"""A lowered plan means what its Regions mean; the reference is a Function like any other."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.execution.from_graph import from_graph
from tatami.execution.lower import lower
from tatami.execution.run import run
from tatami.frontend.graph import Graph
from tatami.region.run import run as run_regions
from tatami.runtime.function import Function
from tatami.runtime.reference_program import ReferenceProgram
from tests.execution.regions import N, chain, program, region
from tests.runtime.compiled import compiled, plan_of


def floats(*dims: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(dims).astype(np.float32)


def test_a_lowered_plan_runs_through_its_regions() -> None:
    regions = chain(4)
    x = floats(7)
    got = run(plan_of(regions), {"in-n0": x}, regions=regions)
    np.testing.assert_array_equal(got["y"], run_regions(regions, {"in-n0": x})["y"])


def test_without_regions_a_kernel_has_no_meaning() -> None:
    with pytest.raises(TatamiError, match="E1802"):
        run(lower(chain(1), None, None), {"in-n0": floats(3)})


@pytest.mark.parametrize("size", [0, 1, 33])
def test_compiled_and_reference_agree_on_an_update(size: int) -> None:
    body = (region("r0", "add", ("n0", "n1"), "n2", N, updates="n0"), region("r1", "mul", ("n0", "n1"), "n3", N))
    regions = Module({"main": program(body, {"n0": N, "n1": N}, {"s": ("n2", N), "y": ("n3", N)}, updates={"s": "in-n0"})})
    execution = plan_of(regions)
    reference = Function(execution, ReferenceProgram(execution, regions))
    state, other, x = floats(size), floats(size), floats(size) * 2
    a = compiled(regions)({"in-n0": state, "in-n1": x})
    b = reference({"in-n0": other, "in-n1": x})
    np.testing.assert_array_equal(a["y"], b["y"])
    np.testing.assert_array_equal(state, other)
    assert b["s"] is other


def test_the_reference_target_is_a_function() -> None:
    g = Graph()
    x = g.input("x", ("B", 4), DType.fp32)
    g.output("y", (x @ g.constant(floats(4, 3), "w")).relu())
    execution = from_graph(g.module())
    f = Function(execution, ReferenceProgram(execution))
    y = f(x=floats(2, 4))["y"]
    assert y.shape == (2, 3)
    out = np.empty((2, 3), np.float32)
    f(x=floats(2, 4), out={"y": out})
    np.testing.assert_array_equal(out, y)
    np.testing.assert_array_equal(f.bind(x=floats(2, 4))()["y"], y)
    assert f.memory["arena_without_reuse"] == 24
