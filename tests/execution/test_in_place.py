"""Results in the place of an operand: taken where it dies, refused wherever its value may still be needed."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.c.check_launches import check_launches
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.kernel import KernelFace, KernelParam
from tatami.core.module import Module
from tatami.execution.arena import Planner, aligned, with_offsets
from tatami.execution.frames import Layouts
from tatami.execution.in_place import take_places
from tatami.execution.ir import BufferInfo, Case, Choose, ExecutionPlan, Instruction, Launch, Ptr
from tatami.execution.lower import lower
from tatami.execution.verify import verify
from tests.execution.regions import chain

replace = msgspec.structs.replace
FACE = KernelFace("", (KernelParam(DType.fp32, False), KernelParam(DType.fp32, True)), 0, "", in_place=((0, 1),))


def made(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with buffers in place as if every kernel were elementwise."""
    names = {ins.op.kernel for ins in plan.instructions if isinstance(ins.op, Launch)}
    return with_offsets(take_places(plan, {name: replace(FACE, symbol=name) for name in names}))


def places(plan: ExecutionPlan) -> dict[str, str]:
    return {b.id: b.in_place_of for b in plan.buffers if b.in_place_of}


def test_a_chain_of_ten_lies_in_one_buffer() -> None:
    plan = made(lower(chain(10, shape(1000)), None, None).main)
    assert places(plan) == {f"n{k + 1}": f"n{k}" for k in range(1, 9)}
    module = Module({"main": plan})
    assert verify(module) == []
    assert Planner(Layouts(module), 1).plan("main", {}).bytes == aligned(4000)


def test_symbolic_sizes_are_placed_when_they_are_bound() -> None:
    plan = made(lower(chain(10), None, None).main)
    assert Planner(Layouts(Module({"main": plan})), 1).plan("main", {"N": 1000}).bytes == aligned(4000)


def read_again(plan: ExecutionPlan) -> ExecutionPlan:
    """n1 is read by the third kernel too."""
    later = replace(plan.instructions[2], inputs=("n2", "n1"))
    return replace(plan, instructions=(*plan.instructions[:2], later, *plan.instructions[3:]))


def test_what_is_read_again_keeps_its_place() -> None:
    plan = read_again(lower(chain(4, shape(4)), None, None).main)
    assert places(made(plan)) == {"n3": "n2"}


def test_a_reader_of_the_same_wave_keeps_the_place() -> None:
    plan = lower(chain(3, shape(4)), None, None).main
    beside = Instruction(Launch("r9", (Ptr("n1"), Ptr("n9"))), ("n1",), ("n9",), "r9", 1)
    spare = BufferInfo("n9", DType.fp32, shape(4), expr(4), "arena")
    plan = replace(plan, instructions=(plan.instructions[0], beside, *plan.instructions[1:]), buffers=(*plan.buffers, spare))
    assert "n1" not in places(made(plan)).values()


def test_every_case_has_to_allow_it() -> None:
    plan = lower(chain(3, shape(4)), None, None).main
    straight, other = Launch("r1", (Ptr("n1"), Ptr("n2"))), Launch("k", (Ptr("n1"), Ptr("n2")))
    twice = (straight, Launch("k", (Ptr("n1"), Ptr("n2"))))

    def taken(*cases: tuple[Launch, ...]) -> dict[str, str]:
        chosen = replace(plan.instructions[1], op=Choose(tuple(Case((), c) for c in cases)))
        edited = replace(plan, instructions=(plan.instructions[0], chosen, plan.instructions[2]))
        return places(take_places(edited, {"r1": FACE}))

    assert taken((straight,), (straight,)) == {"n2": "n1"}
    assert taken((straight,), (other,)) == {}
    assert taken(twice) == {}


PLANTED: dict[str, dict[str, Any]] = {
    "is not a buffer": {"in_place_of": "n99"},
    "not two whole buffers": {"in_place_of": "n0"},
    "another offset": {"in_place_of": "n2", "arena_offset": 640},
}


@pytest.mark.parametrize("why", PLANTED)
def test_a_wrong_place_is_named(why: str) -> None:
    plan = made(lower(chain(4, shape(4)), None, None).main)
    wrong = replace(plan, buffers=tuple(replace(b, **PLANTED[why]) if b.id == "n3" else b for b in plan.buffers))
    assert any(why in d.why for d in verify(Module({"main": wrong}))), verify(Module({"main": wrong}))


@pytest.mark.parametrize("why, heirs", [("not the last that uses n1", ("n2",)), ("2 buffers stand in place", ("n2", "n3"))])
def test_a_value_that_is_read_again_is_named(why: str, heirs: tuple[str, ...]) -> None:
    plan = read_again(lower(chain(4, shape(4)), None, None).main)
    wrong = replace(plan, buffers=tuple(replace(b, in_place_of="n1") if b.id in heirs else b for b in plan.buffers))
    assert any(why in d.why for d in verify(Module({"main": wrong})))


def block() -> tt.Graph:
    """A product with a residual that dies there: h = relu(x w1), y = (relu(h w2) w3 + h) w4."""
    g = tt.Graph("block")
    x = g.input("x", (40, 24), tt.fp32)
    w = [g.input(f"w{k}", dims, tt.fp32) for k, dims in enumerate(((24, 64), (64, 24), (24, 64), (64, 24)))]
    h = (x @ w[0]).relu()
    g.output("y", (((h @ w[1]).relu() @ w[2]) + h) @ w[3])
    return g


def test_a_residual_gives_its_place_to_the_sum() -> None:
    f = tt.compile(block(), target="cpu")
    plan = f.stages["execution"].value.main
    assert places(plan)
    rng = np.random.default_rng(0)
    shapes = {"x": (40, 24), "w0": (24, 64), "w1": (64, 24), "w2": (24, 64), "w3": (64, 24)}
    a = {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
    h = np.maximum(a["x"].astype(np.float64) @ a["w0"], 0)
    wanted = (np.maximum(h @ a["w1"], 0) @ a["w2"] + h) @ a["w3"]
    np.testing.assert_allclose(f(a)["y"], wanted, rtol=1e-4, atol=1e-3)


def test_a_place_that_the_kernel_does_not_allow_is_refused() -> None:
    f = tt.compile(block(), target="cpu")
    loop, execution = f.stages["loop"].value, f.stages["execution"].value
    assert check_launches(loop, execution) == []
    kernels = {s: replace(k, face=replace(k.face, in_place=())) for s, k in loop.main.kernels.items()}
    apart = Module({**loop.programs, "main": replace(loop.main, kernels=kernels)}, loop.constants, loop.origins)
    assert any("takes the place of" in d.why for d in check_launches(apart, execution))
