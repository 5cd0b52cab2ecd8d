"""Facts of the execution plan that `docs/design/plan.md` cites."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.api import CompiledFunction, compile, prepare
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.execution.from_graph import from_graph
from tatami.execution.ir import ExecutionPlan
from tatami.execution.run import run
from tatami.execution.show import show
from tatami.execution.verify import verify
from tatami.frontend.graph import Graph
from tatami.models import open_model
from tatami.report.playback import compare_outputs
from tests.golden.programs import PROGRAMS


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def two_layers() -> Graph:
    g = Graph("g")
    x, w = g.input("x", ("M", 16), DType.fp32), g.input("w", (16, 8), DType.fp32)
    h = (x @ w).relu()
    g.output("y", h)
    g.output("z", h.softmax(1) @ w.transpose())
    return g


def plan(f: CompiledFunction) -> ExecutionPlan:
    return f.stages["execution"].value.main


def test_the_order_is_total_and_the_same_each_time() -> None:
    f = compile(two_layers())
    assert f.stages["execution"].json == compile(two_layers()).stages["execution"].json
    done = set(plan(f).input_buffers)
    waves = [i.wave for i in plan(f).instructions]
    assert waves == sorted(waves)
    for i in plan(f).instructions:
        assert set(i.inputs) <= done
        done |= set(i.outputs)
    assert set(plan(f).output_buffers) <= done


def test_buffers_have_an_id_a_shape_and_a_dtype() -> None:
    g = Graph("g")
    a, b = g.input("a", (3, 4), DType.fp16), g.input("b", (4,), DType.i32)
    g.output("c", a.exp())
    g.output("d", b + b)
    buffers = plan(compile(g)).buffers
    assert len({b.id for b in buffers}) == len(buffers) == 4
    assert {(b.dtype, tuple(map(str, b.shape))) for b in buffers} == {(DType.fp16, ("3", "4")), (DType.i32, ("4",))}
    text = compile(g).stages["execution"].text
    assert "fp16[3, 4]" in text and "i32[4]" in text


def test_buffers_have_lifetimes_and_share_memory() -> None:
    g = Graph("g")
    x, w = g.input("x", (64, 64), DType.fp32), g.input("w", (64, 64), DType.fp32)
    for _ in range(10):
        x = (x @ w).softmax(1)
    g.output("y", x)
    f = compile(g)
    f(x=f32(64, 64), w=f32(64, 64))
    memory = f.memory
    assert memory["arena"] <= 3 * 64 * 64 * 4 < memory["arena_without_reuse"]
    for b in memory["buffers"]:
        assert b["id"] and 0 <= b["first_use"] <= b["last_use"] and b["bytes"] == 64 * 64 * 4 and b["offset"] >= 0


def test_an_instruction_has_several_outputs_and_a_name() -> None:
    g = Graph("g")
    values, positions = g.input("x", (4, 13), DType.fp32).op("sort", axis=1)
    g.output("v", values)
    g.output("p", positions)
    f = compile(g)
    (i,) = [i for i in plan(f).instructions if len(i.outputs) == 2]
    assert i.op is not None and i.inputs and i.debug_name and f"# {i.debug_name}" in f.stages["execution"].text
    reference = from_graph(g.module())
    assert [i.debug_name for i in reference.main.instructions] == ["sort"]


def test_a_plan_has_its_four_fields_and_survives_json(tmp_path: Path) -> None:
    f = compile(two_layers())
    p = plan(f)
    assert p.instructions and p.buffers and len(p.input_buffers) == 2 and len(p.output_buffers) == 2
    path = tmp_path / "execution.json"
    path.write_text(f.stages["execution"].json)
    document = json.loads(path.read_text())["programs"]["main"]
    assert {"instructions", "buffers", "input_buffers", "output_buffers"} <= document.keys()
    from tatami.core.codec import from_builtins, to_builtins

    assert from_builtins(to_builtins(p), ExecutionPlan, "execution") == p


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_of_a_graph_runs_and_equals_the_kernels(name: str) -> None:
    module: Module = open_model(PROGRAMS[name]())["frontend"]
    sizes = {
        s: 6 + k
        for k, s in enumerate(sorted({str(v) for i in module.main.signature.inputs for v in i.shape if not str(v).isdigit()}))
    }
    inputs = {}
    for port in module.main.signature.inputs:
        if port.tensor in module.constants:
            continue
        shape = [sizes.get(str(s), s.as_int()) for s in port.shape]
        inputs[port.tensor] = (0.1 * f32(*shape)).astype({"fp16": "f2"}.get(port.dtype.value, "f4"))
    unfused = from_graph(module)
    assert verify(unfused) == []
    got = compile(module)(inputs)
    want = run(unfused, inputs, {}, mode="float64")
    assert [a.difference for a in compare_outputs(module.main.signature, got, want)] == [None] * len(got)


def test_the_plan_of_a_graph_is_public() -> None:
    g = two_layers()
    made = tt.ExecutionPlan.from_graph(g)
    assert [len(made.input_buffers), len(made.output_buffers)] == [2, 2] and made.instructions and made.buffers
    inputs = {"x": f32(5, 16), "w": f32(16, 8)}
    got, want = made.run(inputs), compile(g)(inputs)
    assert all(np.allclose(got[n], want[n], rtol=1e-4, atol=1e-5) for n in ("y", "z"))
    before = str(made)
    g.output("more", g.input("v", (3,), DType.fp32) + 1.0)
    assert str(made) == before and "relu" in before


def test_the_plan_of_the_digits_network_runs() -> None:
    path = Path(__file__).parents[2] / "examples" / "digits"
    module: Module = open_model(path / "digits.onnx")["frontend"]
    image = np.load(path / "held_out.npz")["image"][:5]
    want = run(from_graph(module), {"image": image}, {}, mode="float64")
    got = compile(path / "digits.onnx")(image=image)
    assert [a.difference for a in compare_outputs(module.main.signature, got, want)] == [None] * len(got)


def test_dtypes_come_from_the_graph_and_inputs_have_no_instruction() -> None:
    g = Graph("g")
    i, h = g.input("i", (3,), DType.i32), g.input("h", (3,), DType.fp16)
    d = h * h
    g.output("i_again", i)
    g.output("a", i + i)
    g.output("b", d)
    g.output("c", d)
    inputs = {"i": np.arange(3, dtype="i4"), "h": np.ones(3, "f2")}
    p = from_graph(g.module()).main
    assert {b.dtype for b in p.buffers} == {DType.i32, DType.fp16}
    made = {o for x in p.instructions for o in x.outputs}
    assert not made & set(p.input_buffers)
    for target in ("cpu", "reference"):
        got = compile(g, target=target)(inputs)
        assert got["i_again"].tolist() == [0, 1, 2] and got["a"].tolist() == [0, 2, 4]
        assert got["b"].tolist() == got["c"].tolist() == [1, 1, 1] and got["b"].dtype == np.float16


def test_later_edits_of_the_graph_leave_the_plan() -> None:
    g = Graph("g")
    x = g.input("x", (3,), DType.fp32)
    y = x.exp()
    g.output("y", y)
    p = from_graph(g.module())
    before = show(p)
    g.output("z", y.relu() + 1.0)
    assert show(p) == before and show(from_graph(g.module())) != before


def corrupted(change: str) -> str:
    """The diagnostic of an execution document with one fault."""
    g = Graph("g")
    x, w = g.input("x", (64, 64), DType.fp32), g.input("w", (64, 64), DType.fp32)
    for _ in range(4):
        x = (x @ w).softmax(1)
    g.output("y", x)
    document = json.loads(compile(g).stages["execution"].json)
    main = document["programs"]["main"]
    steps = main["instructions"]
    if change == "two writers":
        steps[1]["outputs"] = list(steps[0]["outputs"])
    elif change == "use before definition":
        steps[0]["inputs"], steps[0]["wave"] = list(steps[-2]["outputs"]), 0
    else:
        live = [b for b in main["buffers"] if b["kind"] == "arena"]
        for b in live:
            b["arena_offset"] = 0
    from tatami.core.codec import from_builtins

    found = verify(Module({"main": from_builtins(main, ExecutionPlan, "execution")}))
    assert found and all(d.why and d.suggestion for d in found)
    return found[0].why


def test_faults_of_allocation_and_order_are_told_apart() -> None:
    whys = [corrupted(c) for c in ("two writers", "use before definition", "overlapping live offsets")]
    assert len(set(whys)) == 3, whys


def test_cpu_and_gpu_plans_agree_up_to_kernels() -> None:
    g = Graph("g")
    x, w = g.input("x", ("M", 64), DType.fp16), g.input("w", (64, 64), DType.fp16)
    g.output("y", ((x @ w).relu() @ w).relu())
    cpu = prepare(g, target="cpu").stages["execution"].main
    gpu = prepare(g, target="sm80").stages["execution"].main
    assert [(b.id, b.kind, b.dtype, b.shape) for b in cpu.buffers] == [(b.id, b.kind, b.dtype, b.shape) for b in gpu.buffers]
    assert [(i.outputs, i.wave) for i in cpu.instructions] == [(i.outputs, i.wave) for i in gpu.instructions]
