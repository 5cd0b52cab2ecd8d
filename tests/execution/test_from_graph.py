"""The unfused plan of a graph: it runs, and equals what the graph means (spec 4)."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.core.signature import Output
from tatami.execution.from_graph import from_graph
from tatami.execution.ir import Call, Copy, ExecutionPlan, If, Loop, Op
from tatami.execution.run import run
from tatami.execution.show import show
from tatami.execution.verify import verify
from tatami.frontend import ir
from tatami.frontend.graph import Graph
from tatami.frontend.run import run as run_frontend

F32 = DType.fp32


def check(g: Graph, inputs: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> Module[ExecutionPlan]:
    module = g.module()
    plan = from_graph(module)
    assert verify(plan) == []
    want = run_frontend(module, inputs, sizes)
    got = run(plan, inputs, sizes)
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
        assert got[name].dtype == want[name].dtype
    return plan


def floats(*dims: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(dims).astype(np.float32)


def test_a_layer_runs_as_it_means() -> None:
    g = Graph()
    x = g.input("x", ("B", 4), F32)
    w = g.constant(floats(4, 3), "w", role="param")
    g.output("y", (x @ w).relu())
    plan = check(g, {"x": floats(5, 4)}).main
    assert [i.op.name for i in plan.instructions if isinstance(i.op, Op)] == ["matmul", "relu"]
    assert [b.kind for b in plan.buffers] == ["input", "constant", "arena", "output"]
    assert [b.id for b in plan.buffers] == ["b0", "b1", "b2", "b3"]
    assert "matmul(b0, b1)" in show(Module({"main": plan}))


def test_dtypes_come_from_the_graph() -> None:
    g = Graph()
    i = g.input("i", ("N",), DType.i32)
    h = g.input("h", ("N",), DType.fp16)
    g.output("a", i + i)
    g.output("b", h * h)
    plan = check(g, {"i": np.arange(3, dtype=np.int32), "h": np.ones(3, np.float16)}).main
    assert {b.dtype for b in plan.buffers} == {DType.i32, DType.fp16}


def test_an_input_as_output_and_one_output_twice() -> None:
    g = Graph()
    x = g.input("x", ("N",), F32)
    y = x.relu()
    g.output("a", x)
    g.output("b", y)
    g.output("c", y)
    check(g, {"x": floats(3)})
    module = g.module()
    kept = tuple(Output("x", F32, shape("N")) for _ in range(2))
    main = msgspec.structs.replace(
        module.main, signature=msgspec.structs.replace(module.main.signature, outputs=kept), graph=()
    )
    plan = from_graph(Module({"main": main}))
    assert [i.op for i in plan.main.instructions] == [Copy(), Copy()] and verify(plan) == []
    np.testing.assert_array_equal(run(plan, {"x": floats(3)})["x"], floats(3))


def test_an_update_reaches_the_input_last() -> None:
    g = Graph()
    s = g.input("s", ("N",), F32, mutability="mutable")
    x = g.input("x", ("N",), F32)
    g.update(s, s + x)
    g.output("y", s * x)
    old = floats(3)
    plan = check(g, {"s": old, "x": floats(3)}).main
    assert isinstance(plan.instructions[-1].op, Copy) and plan.instructions[-1].outputs == ("b0",)
    np.testing.assert_array_equal(old, floats(3))


def test_the_plan_owns_its_operations() -> None:
    g = Graph()
    x = g.input("x", ("N", 4), F32)
    g.output("y", x.sum(1))
    module = g.module()
    plan = from_graph(module)
    before = show(plan)
    for node in module.main.graph:
        node.attrs.clear()
    assert show(plan) == before


def test_calls_branches_and_loops() -> None:
    g = Graph()
    double = g.subgraph("double")
    d = double.input("d", ("K",), F32)
    double.output("r", d + d)
    half = g.subgraph("half")
    d = half.input("d", ("K",), F32)
    half.output("r", d * 0.5)
    x = g.input("x", ("N",), F32)
    c = g.input("c", (), DType.bool)
    y = g.call("double", x)
    g.output("y", g.cond(c, "double", "half", y))
    for chosen in (True, False):
        plan = check(g, {"x": floats(4), "c": np.asarray(chosen)}).main
    assert [type(i.op) for i in plan.instructions] == [Call, If]


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_loop_with_scan(trips: int) -> None:
    g = Graph()
    body = g.subgraph("body")
    body.input("i", (), DType.i64)
    keep = body.input("k", (), DType.bool)
    s = body.input("s", ("N",), F32)
    body.output("k2", keep)
    body.output("s2", s + s)
    body.output("row", s)
    x = g.input("x", ("N",), F32)
    t = g.input("t", (), DType.i64)
    last, rows = g.loop("body", [x], trip=t)
    g.output("y", last)
    g.output("rows", rows)
    plan = check(g, {"x": floats(4), "t": np.asarray(trips)}).main
    op = plan.instructions[0].op
    assert isinstance(op, Loop) and op.carried == 1 and op.scanned == 1 and len(op.new_symbols) == 1


def test_a_plan_survives_json() -> None:
    g = Graph()
    x = g.input("x", ("B", 4), F32)
    g.output("y", x.sum(1))
    plan = from_graph(g.module()).main
    again = from_builtins(to_builtins(plan), ExecutionPlan)
    np.testing.assert_array_equal(run(Module({"main": again}), {"x": np.ones((2, 4), np.float32)})["y"], [4, 4])


def test_float64_bounds_the_error() -> None:
    g = Graph()
    x = g.input("x", ("N",), F32)
    g.output("y", x.exp())
    y = run(from_graph(g.module()), {"x": floats(4)}, mode="float64")["y"]
    assert y.dtype == np.float64


def test_every_value_is_observed() -> None:
    g = Graph()
    x = g.input("x", ("N",), F32)
    g.output("y", x.exp().relu())
    seen: list[tuple[str, str]] = []
    run(from_graph(g.module()), {"x": floats(4)}, observe=lambda p, i, a: seen.append((p, i)))
    assert seen == [("main", "b1"), ("main", "b2")]


def test_a_graph_that_is_none_is_refused() -> None:
    g = Graph()
    x = g.input("x", ("N",), F32)
    g.output("y", x.relu().exp())
    module = g.module()
    first, second = module.main.graph
    broken = ir.Graph(module.main.signature, module.main.tensors, (second,))
    with pytest.raises(TatamiError, match="E1602"):
        from_graph(Module({"main": broken}))
    shuffled = ir.Graph(module.main.signature, module.main.tensors, (second, first))
    plan = from_graph(Module({"main": shuffled}))
    np.testing.assert_array_equal(run(plan, {"x": floats(3)})["y"], run_frontend(module, {"x": floats(3)})["y"])


def test_ten_thousand_nodes() -> None:
    g = Graph()
    x = g.input("x", (2,), F32)
    y = x
    for _ in range(10_000):
        y = -y
    g.output("y", y)
    plan = from_graph(g.module())
    np.testing.assert_array_equal(run(plan, {"x": floats(2)})["y"], floats(2))
