"""Constants that called programs take: packed in `setup`, read from the ConstPool, passed no more; at every size the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.plan.ir import CpuContraction
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.region.ir import Step
from tatami.region.run import run
from tatami.region.verify import verify

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
WIDTH = 48


def assert_near(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


def recurrent(kind: str, direction: str = "forward", **attrs: Any) -> tt.Graph:
    """A layer with constant weights over open steps and an open batch."""
    rng = np.random.default_rng(len(kind))
    d, rows = (2 if direction == "bidirectional" else 1), GATES[kind] * WIDTH
    g = tt.Graph(kind)
    x = g.input("x", ("T", "B", 24), tt.fp32)
    w, r, b = (
        g.constant((rng.standard_normal((d, *shape)) / 8).astype(np.float32))
        for shape in ((rows, 24), (rows, WIDTH), (2 * rows,))
    )
    y, *_ = x.op(kind, w, r, b, direction=direction, **attrs)
    g.output("y", y)
    return g


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("lstm", {}),
    "lstm both ways": ("lstm", {"direction": "bidirectional"}),
    "gru, reset after": ("gru", {"linear_before_reset": True}),
    "gru, reset before": ("gru", {}),
    "gru both ways": ("gru", {"direction": "bidirectional", "linear_before_reset": True}),
    "rnn": ("rnn", {"direction": "reverse"}),
}


@pytest.mark.parametrize("name", CASES)
def test_recurrent_weights_are_packed_once_and_right_at_every_size(name: str) -> None:
    kind, attrs = CASES[name]
    f = tt.compile(recurrent(kind, **attrs), target="cpu", threads=2)
    wanted = tt.compile(recurrent(kind, **attrs), target="reference")
    for steps, batch in ((1, 1), (3, 1), (5, 2), (4, 13), (0, 3), (2, 0)):
        x = np.random.default_rng(steps).standard_normal((steps, batch, 24)).astype(np.float32)
        got, want = f(x=x)["y"], wanted(x=x)["y"]
        assert got.shape == want.shape
        assert_near(got, want)
    bodies = [n for n in f.stages["plan"].value.programs if n not in ("main", "setup")]
    plans = [r.choices[-1].plan for n in bodies for r in f.stages["plan"].value.programs[n].regions]
    products = [p for p in plans if isinstance(p, CpuContraction)]
    assert products
    assert all(p.packed for p in products)


@pytest.mark.parametrize("hint", [1, 8])
def test_a_hint_of_few_rows_keeps_the_packed_product(hint: int) -> None:
    f = tt.compile(recurrent("lstm"), target="cpu", sizes={"B": (1, hint, 64)})
    (body,) = (p for n, p in f.stages["plan"].value.programs.items() if n not in ("main", "setup"))
    assert any(isinstance(r.choices[-1].plan, CpuContraction) and r.choices[-1].plan.packed for r in body.regions)


def test_the_realised_step_takes_packed_weights_from_the_pool() -> None:
    f = tt.compile(recurrent("lstm"), target="cpu")
    stages = f.compilation.stages
    realised = stages["realised"]
    assert [str(d) for d in verify(realised)] == []
    (name,) = (n for n in realised.programs if n not in ("main", "setup"))
    pooled = [p.tensor for p in realised.programs[name].signature.inputs if p.storage == "const_pool"]
    assert len(pooled) == 1
    assert pooled[0] in [o.tensor for o in realised.programs["setup"].signature.outputs]
    plain = stages["region"]
    step, before = (next(i for i in m.main.body if isinstance(i, Step)) for m in (realised, plain))
    assert len(step.inputs) == len(before.inputs) - 1
    x = np.random.default_rng(0).standard_normal((3, 2, 24)).astype(np.float32)
    assert_near(run(realised, {"x": x})["y"], run(plain, {"x": x})["y"])


def two_loops(same: bool) -> tt.Graph:
    """A body that takes its matrix as an argument: one constant in both loops, or two."""
    rng = np.random.default_rng(3)
    g = tt.Graph("twice")
    body = g.subgraph("layer")
    body.input("i", (), tt.i64)
    go = body.input("go", (), tt.bool)
    a, m = body.input("a", ("B", 64), tt.fp32), body.input("m", (64, 64), tt.fp32)
    body.output("again", go)
    body.output("next", a.matmul(m).tanh())
    x = g.input("x", ("B", 64), tt.fp32)
    one, other = (g.constant((rng.standard_normal((64, 64)) / 8).astype(np.float32)) for _ in range(2))
    first = g.loop(body, [x], [one], trip=3)
    g.output("y", g.loop(body, [first], [one if same else other], trip=2))
    return g


@pytest.mark.parametrize("same", [True, False])
def test_an_argument_is_constant_where_all_calls_give_the_same(same: bool) -> None:
    f = tt.compile(two_loops(same), target="cpu")
    wanted = tt.compile(two_loops(same), target="reference")
    for batch in (1, 7):
        x = np.random.default_rng(batch).standard_normal((batch, 64)).astype(np.float32)
        assert_near(f(x=x)["y"], wanted(x=x)["y"])
    region = f.stages["region"].value
    (body,) = (n for n in region.programs if n not in ("main", "setup"))
    assert bool(constant_arguments(region)[body]) == same
