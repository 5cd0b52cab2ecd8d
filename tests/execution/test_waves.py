"""A document without order gets one; dependences go by slices, updates and host sizes too."""

from __future__ import annotations

import random
from typing import Literal

import msgspec
import pytest

from tatami.core.codec import dump_text, from_builtins, parse_text, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.kernel import Condition
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.execution.ir import (
    UNORDERED,
    BufferInfo,
    Call,
    Case,
    Choose,
    Copy,
    ExecutionPlan,
    Host,
    If,
    Instruction,
    Launch,
    Loop,
    Op,
    Ptr,
    SizeArg,
    TensorMap,
)
from tatami.execution.lower import lower
from tatami.execution.verify import verify
from tatami.execution.waves import order, waves
from tests.execution.regions import chain


def buffer(
    id: str, kind: Literal["input", "output", "constant", "arena"], parent: str = "", offset: int = 0, size: str | int = 4
) -> BufferInfo:
    return BufferInfo(
        id, DType.fp32, shape(size), expr(size), kind, parent=parent, offset=None if offset is None else expr(offset)
    )


def step(name: str, reads: str, writes: str) -> Instruction:
    return Instruction(Launch(name, ()), tuple(reads.split()), tuple(writes.split()), name)


SIGNATURE = Signature((Input("x", DType.fp32, shape(4)),), (Output("y", DType.fp32, shape(8)),))


def test_a_shuffled_document_without_waves_runs_in_the_same_order() -> None:
    plan = lower(chain(20), None, None).main
    document = to_builtins(plan)
    document["instructions"] = list(document["instructions"])
    for instruction in document["instructions"]:
        del instruction["wave"]
    random.Random(0).shuffle(document["instructions"])
    loaded = from_builtins(document, ExecutionPlan)
    assert loaded.instructions[0].wave == UNORDERED
    assert order(loaded) == plan


def test_waves_in_a_document_are_kept() -> None:
    plan = lower(chain(2), None, None).main
    later = tuple(msgspec.structs.replace(i, wave=i.wave * 5 + 1) for i in plan.instructions)
    assert [i.wave for i in order(msgspec.structs.replace(plan, instructions=later)).instructions] == [1, 6]


def test_slices_of_a_parent_come_before_its_reader() -> None:
    plan = ExecutionPlan(
        SIGNATURE,
        (step("use", "p", "y"), step("left", "x", "a"), step("right", "x", "b")),
        (
            buffer("x", "input"),
            buffer("p", "arena", size=8),
            buffer("a", "arena", "p", 0),
            buffer("b", "arena", "p", 4),
            buffer("y", "output", size=8),
        ),
        ("x",),
        ("y",),
    )
    ordered = order(plan)
    assert [i.debug_name for i in ordered.instructions] == ["left", "right", "use"]
    assert [i.wave for i in ordered.instructions] == [0, 0, 1]
    assert verify(Module({"main": ordered})) == []
    parent = next(b for b in ordered.buffers if b.id == "p")
    assert (parent.first_use, parent.last_use) == (0, 2)


def test_sizes_that_a_host_step_finds_come_first() -> None:
    nonzero = Instruction(Host("nonzero", ("K",)), ("x",), ("i",), "host")
    plan = ExecutionPlan(
        SIGNATURE,
        (step("fill", "x", "z"), nonzero),
        (buffer("x", "input"), buffer("i", "arena", size="K"), buffer("z", "arena", size="K*2")),
        ("x",),
        (),
    )
    assert waves(plan) == [1, 0]


def test_a_circle_is_reported() -> None:
    plan = ExecutionPlan(
        SIGNATURE, (step("a", "u", "v"), step("b", "v", "u")), (buffer("u", "arena"), buffer("v", "arena")), (), ()
    )
    with pytest.raises(TatamiError, match="E1604"):
        waves(plan)


def test_every_operation_survives_json() -> None:
    operations = (
        Choose((Case((Condition(expr("N"), 4, 1, 64),), (Launch("k0", (Ptr("x"), SizeArg(expr("N*2")))),)), Case((), ()))),
        Launch("k1", (TensorMap("x", shape("N", 4), shape("N*4"), (8, 8), 128),), shape("N//8", 1), (128, 1, 1), (2, 1), 4096),
        Call("sub", {"K": expr("N + 1")}, ("Q",)),
        If("a", "b", {"K": expr(3)}),
        Loop("body", 1, 2, {}, ("T",)),
        Host("nonzero", ("K",), {"axis": 1, "words": ["INF", 2.5, True]}),
        Copy(),
        Op("sum", {"axes": [1]}, ("Z",)),
    )
    plan = ExecutionPlan(SIGNATURE, tuple(Instruction(op, ("x",), ("y",), "n", 3) for op in operations), (), (), ())
    assert from_builtins(parse_text(dump_text(to_builtins(plan))), ExecutionPlan) == plan
