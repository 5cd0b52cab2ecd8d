"""Each rule of an execution plan with one planted fault."""

from __future__ import annotations

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.execution.ir import BufferInfo, Call, Copy, ExecutionPlan, Instruction, Launch, Ptr
from tatami.execution.lower import lower
from tatami.execution.verify import verify
from tests.execution.regions import chain
from tests.execution.test_waves import buffer, step

replace = msgspec.structs.replace


def good() -> ExecutionPlan:
    """x -> a -> b -> y, all of four numbers, with offsets."""
    return lower(chain(3, shape(4)), None, None).main


def found(plan: ExecutionPlan, **others: ExecutionPlan) -> list[str]:
    return [d.kind for d in verify(Module({"main": plan, **others}))]


def edit(plan: ExecutionPlan, i: int, **fields: object) -> ExecutionPlan:
    changed = list(plan.instructions)
    changed[i] = replace(changed[i], **fields)
    return replace(plan, instructions=tuple(changed))


def edit_buffer(plan: ExecutionPlan, id: str, **fields: object) -> ExecutionPlan:
    return replace(plan, buffers=tuple(replace(b, **fields) if b.id == id else b for b in plan.buffers))


def test_a_good_plan_has_no_faults() -> None:
    assert found(good()) == []


def test_two_writers() -> None:
    p = good()
    extra = Instruction(Copy(), ("n0",), ("n2",), "again", 1)
    p = replace(p, instructions=(p.instructions[0], p.instructions[1], extra, p.instructions[2]))
    assert "InvalidExecution" in found(p)
    assert any("already has a writer" in d.why for d in verify(Module({"main": p})))


def test_use_before_definition() -> None:
    p = good()
    swapped = (p.instructions[1], p.instructions[0], p.instructions[2])
    assert any("has to come first" in d.why for d in verify(Module({"main": replace(p, instructions=swapped)})))


def test_reading_what_nothing_writes() -> None:
    p = good()
    assert "UnknownValue" in found(replace(p, instructions=p.instructions[1:]))


def test_overlapping_live_offsets() -> None:
    p = edit_buffer(good(), "n2", arena_offset=0)
    assert any("shares arena bytes" in d.why for d in verify(Module({"main": p})))


def test_a_misaligned_offset() -> None:
    assert "LayoutMismatch" in found(edit_buffer(good(), "n2", arena_offset=65))


def test_unknown_buffers() -> None:
    assert "UnknownValue" in found(edit(good(), 0, inputs=("n99",)))
    assert "UnknownValue" in found(edit(good(), 0, op=Launch("k", (Ptr("n99"),))))
    assert "UnknownValue" in found(replace(good(), output_buffers=("n99",)))


def test_a_kernel_argument_that_is_neither_input_nor_output() -> None:
    assert "InvalidExecution" in found(edit(good(), 0, op=Launch("k", (Ptr("n3"),))))


def test_duplicate_buffers() -> None:
    p = good()
    assert "DuplicateId" in found(replace(p, buffers=(*p.buffers, p.buffers[0])))


def test_waves_that_fall_or_do_not_rise_across_a_dependence() -> None:
    assert any("stands after wave" in d.why for d in verify(Module({"main": edit(good(), 0, wave=7)})))
    assert any("which it follows" in d.why for d in verify(Module({"main": edit(good(), 1, wave=0)})))


def test_writing_an_input_or_a_constant() -> None:
    p = good()
    extra = Instruction(Copy(), ("n1",), ("n0",), "bad", 2)
    assert "InvalidExecution" in found(replace(p, instructions=(*p.instructions, extra)))


def test_a_buffer_that_disagrees_with_the_signature() -> None:
    assert "InputMismatch" in found(edit_buffer(good(), "n0", dtype=DType.i32))
    assert "InvalidExecution" in found(edit_buffer(good(), "n3", kind="arena"))
    assert "InvalidExecution" in found(replace(good(), input_buffers=()))


SLICES = Signature((Input("x", DType.fp32, shape(4)),), (Output("y", DType.fp32, shape(8)),))


def slices(offset: int, size: int = 4) -> ExecutionPlan:
    return ExecutionPlan(
        SLICES,
        (replace(step("l", "x", "a"), wave=0), replace(step("r", "x", "b"), wave=0), replace(step("u", "p", "y"), wave=1)),
        (
            buffer("x", "input"),
            buffer("p", "arena", size=8),
            buffer("a", "arena", "p", 0),
            buffer("b", "arena", "p", offset, size),
            buffer("y", "output", size=8),
        ),
        ("x",),
        ("y",),
    )


def test_slices_that_overlap_or_leave_their_parent() -> None:
    assert found(slices(4)) == []
    assert any("may share elements" in d.why for d in verify(Module({"main": slices(3)})))
    assert any("may lie outside" in d.why for d in verify(Module({"main": slices(5)})))


def test_a_slice_of_itself() -> None:
    assert "CyclicGraph" in found(edit_buffer(edit_buffer(slices(4), "p", parent="b"), "b", parent="p"))


def test_a_kernel_name_that_is_no_name() -> None:
    assert "InvalidExecution" in found(edit(good(), 0, op=Launch("k(); evil", ())))


def test_a_buffer_smaller_than_its_shape() -> None:
    assert "InvalidExecution" in found(edit_buffer(good(), "n1", elements=shape(3)[0]))


def test_an_unbound_size() -> None:
    assert "UnboundSymbol" in found(edit_buffer(good(), "n1", shape=shape("Q"), elements=shape("Q")[0], arena_offset=-1))


def test_calls_that_do_not_fit() -> None:
    callee = lower(chain(1, shape(4)), None, None).main
    assert found(edit(good(), 1, op=Call("sub")), sub=callee) == []
    assert "UnknownValue" in found(edit(good(), 1, op=Call("gone")), sub=callee)
    assert "InvalidExecution" in found(edit(good(), 1, op=Call("sub"), inputs=("n1", "n0")), sub=callee)


def test_calls_more_than_ten_deep() -> None:
    leaf = lower(chain(1, shape(4)), None, None).main
    programs = {f"p{k}": edit(leaf, 0, op=Call(f"p{k + 1}")) for k in range(12)}
    assert "RecursionDepth" in found(edit(leaf, 0, op=Call("p0")), **programs, p12=leaf)


def test_an_output_nobody_writes() -> None:
    p = good()
    assert any("nothing writes" in d.why for d in verify(Module({"main": replace(p, instructions=p.instructions[:2])})))


@pytest.mark.parametrize("field", ["signature", "instructions", "buffers", "input_buffers", "output_buffers"])
def test_the_plan_has_the_fields_of_the_spec(field: str) -> None:
    assert field in ExecutionPlan.__struct_fields__ and "shape" in BufferInfo.__struct_fields__
