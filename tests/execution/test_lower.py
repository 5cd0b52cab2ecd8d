"""Regions become instructions; outputs, updates and calls get the copies and sizes they need."""

from __future__ import annotations

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.kernel import Binding, Condition
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.execution.ir import Call, Choose, Copy, Launch, Loop
from tatami.execution.lower import lower
from tatami.execution.verify import verify
from tatami.execution.waves import execution_order
from tatami.region.ir import Param, Program, Step
from tests.execution.regions import F32, chain, program, region

N = shape("N")


class Kernels:
    def __init__(self, *bindings: Binding) -> None:
        self.bindings = bindings


def plan_of(p: Program, kernels: Module | None = None):
    module = lower(Module({"main": p}), None, kernels)
    assert verify(module) == []
    return module.main


def test_a_chain_has_one_wave_per_kernel_and_no_instruction_for_the_input() -> None:
    module = lower(chain(3), None, None)
    assert verify(module) == []
    plan = module.main
    assert [i.wave for i in plan.instructions] == [0, 1, 2]
    assert [b.kind for b in plan.buffers] == ["input", "arena", "arena", "output"]
    assert execution_order(plan)[0] == ("r0", ("n0",), ("n1",), 0)
    assert (plan.buffers[1].first_use, plan.buffers[1].last_use) == (0, 1)


def test_independent_kernels_share_a_wave() -> None:
    body = (
        region("r0", "neg", ("n0",), "n1", N),
        region("r1", "exp", ("n0",), "n2", N),
        region("r2", "add", ("n1", "n2"), "n3", N),
    )
    plan = plan_of(program(body, {"n0": N}, {"y": ("n3", N)}))
    assert [i.wave for i in plan.instructions] == [0, 0, 1]


def test_an_output_that_is_an_input_is_copied() -> None:
    plan = plan_of(program((), {"n0": N}, {"a": ("n0", N), "b": ("n0", N)}))
    assert [i.op for i in plan.instructions] == [Copy(), Copy()]
    assert plan.output_buffers == ("out0", "out1")


def test_an_output_listed_twice_is_computed_once() -> None:
    plan = plan_of(program((region("r0", "neg", ("n0",), "n1", N),), {"n0": N}, {"a": ("n1", N), "b": ("n1", N)}))
    assert [type(i.op) for i in plan.instructions] == [Launch, Copy]
    assert plan.output_buffers == ("n1", "out1")


def test_an_update_is_written_after_every_read_of_the_old_value() -> None:
    body = (
        region("r0", "neg", ("n0",), "n1", N),
        region("r1", "exp", ("n1",), "n2", N),
        region("r2", "add", ("n2", "n0"), "n3", N),
    )
    plan = plan_of(program(body, {"n0": N}, {"new": ("n1", N), "y": ("n3", N)}, updates={"new": "in-n0"}))
    last = plan.instructions[-1]
    assert isinstance(last.op, Copy) and last.outputs == ("n0",) and last.wave == 3
    assert plan.output_buffers == ("n0", "n3")


def test_two_states_that_swap_keep_the_old_values() -> None:
    p = program((), {"n0": N, "n1": N}, {"a": ("n1", N), "b": ("n0", N)}, updates={"a": "in-n0", "b": "in-n1"})
    plan = plan_of(p)
    assert [i.outputs[0] for i in plan.instructions] == ["n1.old", "n0.old", "n0", "n1"]


def test_a_region_updates_in_place() -> None:
    body = (region("r0", "neg", ("n0",), "n1", N, updates="n0"), region("r1", "exp", ("n0",), "n2", N))
    plan = plan_of(program(body, {"n0": N}, {"new": ("n1", N), "y": ("n2", N)}, updates={"new": "in-n0"}))
    assert [i.debug_name for i in plan.instructions] == ["r1", "r0"]
    assert next(b for b in plan.buffers if b.id == "n1").parent == "n0"


def test_an_update_of_an_immutable_input_is_refused() -> None:
    p = program((region("r0", "neg", ("n0",), "n1", N, updates="n0"),), {"n0": N}, {"y": ("n1", N)})
    with pytest.raises(TatamiError, match="E1802"):
        lower(Module({"main": p}), None, None)


def test_constants_lie_in_the_pool_when_they_are_known() -> None:
    import numpy as np

    from tatami.core.tensor import Tensor

    body = (region("r0", "add", ("n0", "n1"), "n2", N),)
    p = program(body, {"n0": N, "n1": N}, {"y": ("n2", N)}, pool=("n1",))
    assert [b.kind for b in lower(Module({"main": p}), None, None).main.buffers[:2]] == ["input", "input"]
    constants = {"in-n1": Tensor(np.zeros(4, np.float32))}
    assert [b.kind for b in lower(Module({"main": p}, constants), None, None).main.buffers[:2]] == ["input", "constant"]


def test_guarded_kernels_workspace_and_scratch() -> None:
    body = (region("r0", "neg", ("n0",), "n1", N),)
    wide = Binding("r0", "k0", ("n0", "s"), (expr("N"),), 0, (Condition(expr("N"), 4),), scratch=(("s", expr("N*4")),))
    second = Binding("r0", "k1", ("s", "n1"), (), 0, workspace=expr("N*8"))
    plain = Binding("r0", "k2", ("n0", "n1"), (expr("N"),), 1)
    plan = plan_of(program(body, {"n0": N}, {"y": ("n1", N)}), Module({"main": Kernels(wide, second, plain)}))
    op = plan.instructions[0].op
    assert isinstance(op, Choose) and [len(c.launches) for c in op.cases] == [2, 1]
    assert plan.instructions[0].outputs == ("n1", "r0.s", "r0.1.w")


def test_a_region_without_kernel_is_refused() -> None:
    with pytest.raises(TatamiError, match="E1802"):
        lower(chain(1), None, Module({"main": Kernels()}))


def test_a_call_takes_its_sizes_from_the_arguments() -> None:
    callee = program((region("r0", "neg", ("n0",), "n1", shape("K")),), {"n0": shape("K")}, {"y": ("n1", shape("K"))})
    step = Step("c0", "program", ("sub",), ("n0",), (Param("n5", MemRef(F32, shape("2*N"))),))
    main = program((step,), {"n0": shape("2*N")}, {"y": ("n5", shape("2*N"))})
    module = lower(Module({"main": main, "sub": callee}), None, None)
    assert verify(module) == []
    assert module.main.instructions[0].op == Call("sub", {"K": expr("2*N")})


def test_a_loop_passes_its_body_the_carried_values() -> None:
    i64, flag = Input("i", DType.i64, ()), Input("c", DType.bool, ())
    body = Program(
        Signature((i64, flag, Input("x", F32, N)), (Output("c", DType.bool, ()), Output("x", F32, N))),
        ("n0", "n1", "n2"),
        ("n1", "n3"),
        (region("r0", "neg", ("n2",), "n3", N),),
    )
    step = Step("l0", "loop", ("body",), ("n9", "", "n0"), (Param("n1", MemRef(F32, N)),), attrs={"carried": 1, "scanned": 0})
    main = Program(
        Signature((Input("x", F32, N), Input("trips", DType.i64, ())), (Output("y", F32, N),)), ("n0", "n9"), ("n1",), (step,)
    )
    module = lower(Module({"main": main, "body": body}), None, None)
    assert verify(module) == []
    assert module.main.instructions[0].op == Loop("body", 1, 0, {"N": expr("N")})


def test_offsets_are_fixed_when_all_sizes_are_numbers() -> None:
    plan = lower(chain(10, shape(100)), None, None).main
    offsets = {b.arena_offset for b in plan.buffers if b.kind == "arena"}
    assert offsets == {0, 448}


def test_ten_thousand_kernels_lower_in_time() -> None:
    module = lower(chain(10_000), None, None)
    assert module.main.instructions[-1].wave == 9_999
    assert verify(module) == []
