"""Sizes that data decide and compiled code reads: where they decide no memory, and nowhere else."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.execution.extents import read_extents
from tatami.execution.ir import BufferInfo, Call, ExecutionPlan, Extent, Host, Instruction, Launch, Ptr, SizeArg
from tatami.execution.run import run
from tatami.execution.verify import verify
from tests.onnx.subgraphs.test_control import i64, model, oracle, x

FILL = """g (int64 trip, float[9, 3] start, float[1, 3] row, int64[1] first, int64[1] step) => (float[9, 3] y, int64[1] end) {
    yes = Constant <value = bool {1}> ()
    one = Constant <value = int64[1] {1}> ()
    y, end = Loop (trip, yes, start, first)
        <body = body (int64 i, bool go, float[9, 3] s, int64[1] at) => (bool again, float[9, 3] t, int64[1] next) {
            next = Add (at, step)
            head = Slice (s, at, next)
            added = Add (head, row)
            zeros = Sub (s, s)
            low = Constant <value = int64[1] {0}> ()
            part = ReduceSum <keepdims = 1> (added, low)
            t = Add (s, part)
            again = Identity (go)
        }>
}"""
"""A loop whose turns each sum a slice that ends at a carried position: its length decides no memory."""


def reads(module: Module[ExecutionPlan]) -> dict[str, list[type]]:
    return {n: [type(i.op) for i in p.instructions if isinstance(i.op, Host | Extent)] for n, p in module.programs.items()}


def test_a_loop_reads_its_sizes_without_python() -> None:
    made = model(FILL)
    f = tt.compile(made, threads=1)
    assert {k for of in reads(f.execution).values() for k in of} == {Extent}
    assert "read by compiled code, without Python" in f.explain() and "synchronisations" not in f.explain()
    for trip, first, step in ((4, 0, 2), (3, 1, 1), (0, 0, 3), (2, 3, 0), (2, -5, 4), (5, 6, 2)):
        feed = {"trip": i64(trip), "start": x(9, 3), "row": x(1, 3), "first": i64([first]), "step": i64([step])}
        got = f(feed)
        for name, wanted in zip(("y", "end"), oracle(made, feed), strict=True):
            np.testing.assert_allclose(got[name], wanted, rtol=1e-5, err_msg=f"{name} {trip} {first} {step}")


def plan(symbol_decides_memory: bool = False, routine: str = "extent", dtype: DType = DType.i64) -> Module[ExecutionPlan]:
    """y[4] = k(x, n; S) where n holds S; with a temporary of S elements if asked for."""
    ends: tuple[BufferInfo, ...] = (
        BufferInfo("x", DType.fp32, shape(4), expr(4), "input"),
        BufferInfo("n", dtype, shape(), expr(1), "input"),
        BufferInfo("e", DType.bool, shape("S", 0), expr(0), "arena"),
        BufferInfo("y", DType.fp32, shape(4), expr(4), "output"),
    )
    inputs = (Input("x", DType.fp32, shape(4)), Input("n", dtype, shape()))
    steps = [Instruction(Host(routine, ("S",)), ("n",), ("e",), "r0")]
    steps.append(Instruction(Launch("k", (Ptr("x"), Ptr("y"), SizeArg(expr("S")))), ("x",), ("y",), "r1"))
    if symbol_decides_memory:
        ends = (*ends, BufferInfo("t", DType.fp32, shape("S"), expr("S"), "arena"))
        steps[1] = Instruction(Launch("k", (Ptr("x"), Ptr("y"), Ptr("t"), SizeArg(expr("S")))), ("x",), ("y", "t"), "r1")
    signature = Signature(inputs, (Output("y", DType.fp32, shape(4)),))
    return Module({"main": ExecutionPlan(signature, tuple(steps), ends, ("x", "n"), ("y",))}, {}, {})


def read(module: Module[ExecutionPlan]) -> Module[ExecutionPlan]:
    return Module(read_extents(module), module.constants, module.origins)


def test_the_step_becomes_an_instruction_and_its_result_is_gone() -> None:
    made = read(plan())
    assert reads(made) == {"main": [Extent]} and not verify(made)
    assert [b.id for b in made.main.buffers] == ["x", "n", "y"]


@pytest.mark.parametrize("kept", [plan(symbol_decides_memory=True), plan(routine="nonzero"), plan(dtype=DType.i32)])
def test_a_step_that_python_has_to_run_stays(kept: Module[ExecutionPlan]) -> None:
    assert read(kept).programs == kept.programs


def test_a_program_that_calls_one_with_steps_keeps_its_own() -> None:
    inner = plan(routine="nonzero").main
    outer = plan().main
    call = Instruction(Call("inner"), ("x", "n"), ("y",), "r1")
    outer = msgspec.structs.replace(outer, instructions=(outer.instructions[0], call))
    made = Module({"main": outer, "inner": inner}, {}, {})
    assert read(made).programs == made.programs


def edited(**fields: object) -> Module[ExecutionPlan]:
    """The plan with an Extent, with fields of its first instruction changed."""
    made = read(plan()).main
    first = msgspec.structs.replace(made.instructions[0], **fields)
    return Module({"main": msgspec.structs.replace(made, instructions=(first, *made.instructions[1:]))}, {}, {})


def with_memory() -> Module[ExecutionPlan]:
    made = plan(symbol_decides_memory=True).main
    first = Instruction(Extent(("S",)), ("n",), (), "r0")
    buffers = tuple(b for b in made.buffers if b.id != "e")
    return Module({"main": msgspec.structs.replace(made, instructions=(first, made.instructions[1]), buffers=buffers)}, {}, {})


def with_python() -> Module[ExecutionPlan]:
    made = read(plan()).main
    step = Instruction(Host("extent", ("T",)), ("n",), ("e",), "r2")
    more = BufferInfo("e", DType.bool, shape("T", 0), expr(0), "arena")
    return Module({"main": msgspec.structs.replace(made, instructions=(*made.instructions, step), buffers=(*made.buffers, more))}, {}, {})  # fmt: skip


@pytest.mark.parametrize(
    "planted, why",
    [
        (edited(inputs=("x",)), "not an integer of 64 bits"),
        (edited(inputs=()), "0 integers for 1 sizes"),
        (with_memory(), "memory is planned before"),
        (with_python(), "runs from Python"),
    ],
)
def test_a_planted_fault_is_found(planted: Module[ExecutionPlan], why: str) -> None:
    found = verify(planted)
    assert [d for d in found if why in d.why] and {d.kind for d in found} == {"InvalidExecution"}, found


def test_a_negative_number_is_told_as_by_the_step() -> None:
    """The same fault from compiled code and from the reference."""
    g = tt.Graph("g")
    n = g.input("n", (), tt.i64)
    g.output("y", g.input("x", (5,), tt.fp32)[: n.as_size()].sum(axis=0))
    f = tt.compile(g, threads=1)
    plans = f.execution
    assert reads(plans)["main"] == [Extent]
    given = x(5)
    for value in (0, 3, 5):
        np.testing.assert_allclose(f(x=given, n=i64(value))["y"], given[:value].sum(), rtol=1e-5, atol=1e-6)
    with pytest.raises(TatamiError, match="-2 is not a size"):
        f(x=given, n=i64(-2))
    with pytest.raises(TatamiError, match="-2 is not a size"):
        run(plans, {"x": given, "n": i64(-2)}, regions=f.stages["region"].value)


def test_a_broken_equation_of_a_size_that_was_read_is_told() -> None:
    """Rows that data decide are assumed to be those of z: the entry checks it before kernels read z."""
    text = """g (float[N] x, int64[2] s, float[A, 4] z) => (float[R, C] y) {
        t = Reshape (x, s)
        y = Add (t, z)
    }"""
    made = model(text)
    f = tt.compile(made, threads=1, max_specialisations=0)
    assert reads(f.execution)["main"] == [Extent]
    for rows in (1, 3):
        feed = {"x": x(rows * 4), "s": i64([rows, 4]), "z": x(rows, 4)}
        np.testing.assert_allclose(f(feed)["y"], oracle(made, feed)[0])
    with pytest.raises(TatamiError, match="E1304"):
        f({"x": x(8), "s": i64([2, 4]), "z": x(3, 4)})


def test_a_result_without_elements_has_a_size_that_was_read() -> None:
    """Result [0, S]: no memory depends on S, but its shape does."""
    made = model(
        """g (int64[1] n) => (float[0, S] y) {
            none = Constant <value = int64[1] {0}> ()
            shape = Concat <axis = 0> (none, n)
            y = ConstantOfShape (shape)
        }"""
    )
    f = tt.compile(made, threads=1)
    for n in (0, 1, 5):
        assert f({"n": i64([n])})["y"].shape == (0, n)
