"""Each rule of the verifier of execution plans: a plan that breaks it has that one fault, and plans at its edge have none."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr, shape, var
from tatami.core.kernel import THREADS, Condition
from tatami.core.layout import Layout, size_elements
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.core.tensor import Tensor
from tatami.execution.ir import (
    UNORDERED,
    BufferInfo,
    Case,
    Choose,
    Copy,
    ExecutionPlan,
    Host,
    Instruction,
    Launch,
    Operation,
    Ptr,
    SizeArg,
    TensorMap,
)
from tatami.execution.verify import verify

replace = msgspec.structs.replace
F32 = DType.fp32


def buffer(id: str, kind: str = "arena", size: int | str = 4, **fields: object) -> BufferInfo:
    return BufferInfo(id, F32, shape(size), expr(size), kind, **fields)  # type: ignore[arg-type]


def part(id: str, parent: str, offset: int | str, size: int | str = 4, kind: str = "arena") -> BufferInfo:
    return buffer(id, kind, size, parent=parent, offset=expr(offset))


def launch(reads: str, writes: str, wave: int = 0, **fields: Any) -> Instruction:
    """A kernel over buffers, `reads` and `writes` separated by spaces, named for what it writes."""
    names = (*reads.split(), *writes.split())
    return Instruction(
        Launch("k", tuple(map(Ptr, names))), tuple(reads.split()), tuple(writes.split()), f"to {writes}", wave, **fields
    )


def run(op: Operation, reads: str = "x", writes: str = "a", wave: int = 0) -> Instruction:
    return Instruction(op, tuple(reads.split()), tuple(writes.split()), "step", wave)


def port(name: str = "x", size: int | str = 4, **fields: object) -> Input:
    return Input(name, F32, shape(size), **fields)  # type: ignore[arg-type]


def plan(*parts: Instruction | BufferInfo, inputs: tuple[Input, ...] = (port(),), outputs: tuple[Output, ...] = (Output("y", F32, shape(4)),), ids: str = "x", gives: str = "y", defaults: dict[str, int] | None = None) -> ExecutionPlan:  # fmt: skip
    """A program from x to y; both are buffers unless `parts` has some of these names."""
    steps = tuple(p for p in parts if isinstance(p, Instruction))
    own = tuple(p for p in parts if isinstance(p, BufferInfo))
    ends = (buffer("x", "input"), buffer("y", "output"))
    buffers = (*(b for b in ends if b.id not in {o.id for o in own}), *own)
    return ExecutionPlan(
        Signature(inputs, outputs, defaults=defaults or {}), steps, buffers, tuple(ids.split()), tuple(gives.split())
    )


def faults(main: ExecutionPlan, **others: ExecutionPlan) -> list[str]:
    return [f"{d.at}: {d.why}" for d in verify(Module({"main": main, **others}))]


a, b = buffer("a"), buffer("b")
CHAIN: Final = (launch("x", "a", 0), launch("a", "b", 1), launch("b", "y", 2), a, b)
TWO = (port("x"), port("z"))
z = buffer("z", "input")
PADDED = Layout("blocked", padding=((1, 1),))
mutable = (port(mutability="mutable"),)
into_x = (Output("y", F32, shape(4), updates="x"),)


def chain(first: int = 0, second: int = 1, third: int = 2, **of_a: object) -> ExecutionPlan:
    return plan(launch("x", "a", first), launch("a", "b", second), launch("b", "y", third), replace(a, **of_a), b)


def at_offsets(first: int, second: int, size: int = 4, **of_b: object) -> ExecutionPlan:
    """a and b live together in wave 1, at these bytes of the arena."""
    return plan(*CHAIN[:3], buffer("a", size=4, arena_offset=first), replace(b, arena_offset=second, **of_b))


def halves(low: int | str, high: int | str, size: int | str = 8, sizes: tuple[int | str, int | str] = (4, 4), last: str = "p") -> ExecutionPlan:  # fmt: skip
    """Two instructions write slices of p, and a third reads it."""
    steps = (launch("x", "l", 0), launch("x", "r", 0), launch(last, "y", 1))
    slices = (part("l", "p", low, sizes[0]), part("r", "p", high, sizes[1]))
    shapes = {"inputs": (port(), port("n", "N")), "ids": "x n"} if "N" in f"{low}{high}{size}{sizes}" else {}
    return plan(*steps, buffer("p", size=size), *slices, *([buffer("n", "input", "N")] if shapes else []), **shapes)  # type: ignore[arg-type]


ACCEPTED: Final = MappingProxyType(
    {
        "a chain": plan(*CHAIN),
        "a chain without an order": chain(UNORDERED, UNORDERED, UNORDERED),
        "a shuffled chain without an order": plan(launch("a", "y", -1), launch("x", "a", -1), a),
        "uses as they are": chain(first_use=0, last_use=1),
        "offsets apart": at_offsets(0, 64),
        "offsets apart, the other way round": at_offsets(64, 0),
        "one offset in turns": plan(launch("x", "a", 0), launch("a", "y", 1), launch("x", "b", 2), replace(a, arena_offset=0), replace(b, arena_offset=0)),
        "an offset that nobody uses": plan(*CHAIN, buffer("c", arena_offset=0), buffer("d", arena_offset=0)),
        "one place in turns, the later one longer": plan(launch("x", "a", 0), launch("a", "c", 1), launch("c", "b", 2), launch("b", "y", 3), replace(a, arena_offset=64), buffer("b", size=32, arena_offset=0), buffer("c")),
        "nothing in the midst of something": plan(launch("x", "a e", 0), launch("a e", "y", 1), buffer("a", size=17, arena_offset=0), buffer("e", size=0, arena_offset=64)),
        "a slice with an offset": plan(launch("x", "l", 0), launch("l", "y", 1), buffer("p", size=8, arena_offset=0), replace(part("l", "p", 0), arena_offset=0)),
        "a slice without an offset": plan(launch("x", "l", 0), launch("l", "y", 1), buffer("p", size=8), buffer("l", parent="p")),
        "a slice of what is written": plan(launch("x", "p", 0), launch("l", "y", 1), buffer("p", size=8), part("l", "p", 4)),
        "an offset in the pool, without an order": plan(*chain(-1, -1, -1).instructions, a, b, buffer("c", "constant", arena_offset=0)),
        "an order for some": plan(launch("a", "y", -1), launch("x", "a", 0), replace(a, first_use=5, last_use=9)),
        "an order for the first": plan(launch("x", "a", 0), launch("a", "y", -1), a),
        "uses without an order": chain(-1, -1, -1, first_use=5, last_use=9),
        "a layout": plan(*CHAIN[:3], replace(a, layout=PADDED, elements=size_elements(PADDED, shape(4))), b),
        "one input for two outputs": plan(inputs=mutable, outputs=into_x * 2, gives="x x"),
        "an update beside an output": plan(launch("x", "y", 0), launch("y", "new", 1), part("new", "x", 0, kind="input"), inputs=mutable, outputs=(Output("y", F32, shape(4)), *into_x), gives="y new"),
        "a place that is taken over": at_offsets(0, 0, in_place_of="a"),
        "alignment of one byte": chain(alignment=1),
        "halves": halves(0, 4),
        "halves turned round": halves(4, 0),
        "a half that is read": halves(0, 4, last="l"),
        "a gap that nobody reads": halves(0, 8, size=12, last="r"),
        "symbolic halves": halves(0, "N", "2*N", ("N", "N"), last="l"),
        "symbolic halves turned round": halves("N", 0, "2*N", ("N", "N"), last="l"),
        "an update": plan(launch("x", "new", 0), part("new", "x", 0, kind="input"), inputs=mutable, outputs=into_x, gives="new"),
        "an output that is an input": plan(inputs=mutable, outputs=into_x, gives="x"),
        "an output that is a constant": plan(buffer("x", "constant"), inputs=(port(storage="const_pool"),), outputs=into_x, gives="x"),
        "kernels at the same time": plan(launch("x", "a", 0, beside=True), launch("x", "b", 0, beside=True), launch("a b", "y", 1), a, b),
        "no operand": plan(Instruction(Launch("k", (Ptr("y"),)), ("",), ("y",), "", 0)),
        "a host step that binds": plan(run(Host("nonzero", ("M",)), "x", "a"), launch("a", "y", 1), buffer("a", size="M")),
        "a default": plan(launch("x", "y"), buffer("c", size="D"), defaults={"D": 2}),
        "threads": plan(run(Launch("k", (SizeArg(var(THREADS)),)), "x", "y")),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(ACCEPTED))
def test_what_breaks_no_rule_is_accepted(what: str) -> None:
    extra = {"constant": 1} if "constant" in what else {}
    found = faults(ACCEPTED[what])
    assert found == (["main: x: the constant 'x' is not in the document"] if extra else [])


tensor_map = TensorMap("a", (var("Q"),), (), (4,), 0)
WRONG: Final[MappingProxyType[str, tuple[ExecutionPlan, str]]] = MappingProxyType(
    {
        "two buffers of one id": (plan(*CHAIN, a), "a: two buffers have this id"),
        "a parent that is not there": (plan(*CHAIN, part("c", "q", 0)), "c: its parent q is not a buffer"),
        "an input that is not there": (plan(launch("x", "y"), ids="q"), "q is listed as input or output"),
        "an output that is not there": (plan(launch("x", "y"), gives="q"), "q is listed as input or output"),
        "an operand that is not there": (plan(Instruction(Launch("k", ()), ("q", "q"), ("y",), "", 0)), "instruction 0: q is not a buffer"),
        "a result that is not there": (plan(Instruction(Launch("k", ()), ("x",), ("y", "q"), "", 0)), "instruction 0: q is not a buffer"),
        "an argument that is not there": (plan(run(Launch("k", (Ptr("q"),)), "x", "y")), "q is not a buffer"),
        "an argument that is no operand": (plan(run(Launch("k", (Ptr("a"),)), "x", "y"), a), "the kernel gets a, which is neither an input"),
        "a tensor map of no operand": (plan(run(Launch("k", (replace(tensor_map, dims=()),)), "x", "y"), a), "the kernel gets a"),
        "a case with a bad name": (
            plan(run(Choose((Case((), (Launch("k", ()), Launch("1k", ()))), Case((), ()))), "x", "y")),
            "'1k' is not a name of a kernel",
        ),
        "a long name": (plan(run(Launch("k" * 129, ()), "x", "y")), "is not a name of a kernel"),
        "more inputs than ports": (plan(launch("x", "y"), z, ids="x z"), "2 input buffers for 1 inputs"),
        "fewer inputs than ports": (plan(launch("x", "y"), inputs=TWO), "1 input buffers for 2 inputs"),
        "more inputs than ports, and one of another type": (
            plan(launch("x", "y"), z, replace(buffer("x", "input"), dtype=DType.i32), ids="x z"), "2 input buffers for 1 inputs"),
        "fewer inputs than ports, and one that is updated": (
            plan(launch("x", "y"), inputs=(port(), port("z", mutability="mutable")), outputs=(Output("y", F32, shape(4)), Output("w", F32, shape(4), updates="z")), gives="y x"),
            "1 input buffers for 2 inputs"),
        "alignment 0 at an offset": (chain(alignment=0, arena_offset=0), "a: alignment 0"),
        "an offset with an order for some": (
            plan(launch("x", "a", -1), launch("a", "y", 1), replace(a, arena_offset=0)), "a: it has an offset, and the instructions have no order"),
        "slices that share, with nothing between": (
            plan(launch("x", "l", 0), launch("x", "e", 0), launch("x", "r", 0), launch("l", "y", 1), buffer("p", size=8), part("l", "p", 0), part("e", "p", 0, 0), part("r", "p", 2, 1)),
            "l and r may share elements of p"),
        "symbolic slices that share, with another between": (
            plan(launch("x", "l", 0), launch("x", "r", 0), launch("x", "s", 0), launch("l n", "y", 1), buffer("p", size="2*N"), part("l", "p", 0, "N"), part("r", "p", "N", "N"), part("s", "p", 0, 1), buffer("n", "input", "N"), inputs=(port(), port("n", "N")), ids="x n"),
            "l and s may share elements of p"),
        "an input of another type": (plan(launch("x", "y"), replace(buffer("x", "input"), dtype=DType.i32)), "x: the buffer is i32[4]"),
        "an input of another shape": (plan(launch("x", "y"), buffer("x", "input", 5)), "x: the buffer is fp32[5]"),
        "an output of another shape": (plan(launch("x", "y"), buffer("y", "output", 5)), "y: the buffer is fp32[5]"),
        "an input in an output": (plan(launch("", "y"), buffer("x", "output")), "the input lies in a buffer of kind output"),
        "an output in an input": (plan(buffer("x", "input"), gives="x"), "the output lies in a buffer of kind input"),
        "an update in an output": (plan(launch("x", "y"), inputs=mutable, outputs=into_x), "the output lies in a buffer of kind output"),
        "two inputs of one name": (plan(launch("x", "y"), z, inputs=(port(), port()), ids="x z"), "two inputs have this name"),
        "two inputs in one buffer": (plan(launch("x", "y"), inputs=TWO, ids="x x"), "one buffer holds two inputs"),
        "two outputs in one buffer": (
            plan(launch("x", "y"), outputs=(Output("y", F32, shape(4)), Output("w", F32, shape(4))), gives="y y"),
            "one buffer holds two outputs",
        ),
        "fewer elements than the shape has": (plan(*CHAIN[:3], replace(a, elements=expr(3)), b), "a: 3 elements for a shape of 4"),
        "more elements than the shape has": (plan(*CHAIN[:3], replace(a, elements=expr(8)), b), "a: 8 elements for a shape of 4"),
        "a slice of itself": (plan(*CHAIN, part("c", "c", 0)), "c: a buffer is a slice of itself"),
        "a slice of another type": (plan(*CHAIN, replace(part("c", "a", 0), dtype=DType.i32)), "c: a slice and its parent a differ"),
        "a slice of another kind": (plan(*CHAIN, part("c", "a", 0, kind="output")), "c: a slice and its parent a differ"),
        "a slice before its parent": (plan(*CHAIN, part("c", "a", -1)), "c: elements -1..3 may lie outside a (4)"),
        "a slice past its parent": (plan(*CHAIN, part("c", "a", 1)), "c: elements 1..5 may lie outside a (4)"),
        "in the place of nothing": (plan(*CHAIN[:4], replace(b, in_place_of="q")), "b: it stands in place of q, which is not a buffer"),
        "in a place of another size": (plan(*CHAIN[:3], buffer("a", size=8), replace(b, in_place_of="a")), "b: it and a are not two whole"),
        "in the place of a slice's parent": (plan(*CHAIN[:4], part("c", "a", 0), replace(b, in_place_of="a")), "b: it and a are not two whole"),
        "a parent in a place": (plan(*CHAIN[:4], part("c", "b", 0), replace(b, in_place_of="a")), "b: it and a are not two whole"),
        "in the place of what it does not read": (
            plan(launch("x", "a"), launch("x", "b", 1), launch("b", "y", 2), a, replace(b, in_place_of="a")),
            "b: the instruction that writes it is not the last that uses a",
        ),
        "in a place, and nobody writes it": (
            plan(launch("x", "a"), launch("a", "y", 1), a, replace(b, in_place_of="a")),
            "b: the instruction that writes it is not the last that uses a",
        ),
        "in a place of another offset": (at_offsets(0, 64, in_place_of="a"), "b: it stands in place of a, and has another offset"),
        "a second writer": (plan(launch("x", "a"), launch("x", "b a"), launch("a", "y", 1), a, b), "to b a: a already has a writer, to a"),
        "a constant that is written": (
            plan(launch("x", "y c"), buffer("c", "constant")), "it writes c, a constant"),
        "an input that is written": (plan(launch("z", "x y"), z, inputs=TWO, ids="x z"), "it writes x, an input that nothing updates"),
        "an immutable input that is updated": (
            plan(launch("x", "new", 0), part("new", "x", 0, kind="input"), outputs=into_x, gives="new"),
            "it writes new, an input that nothing updates",
        ),
        "a mutable input that nothing updates": (
            plan(launch("x", "y", 0), launch("y", "new", 1), part("new", "x", 0, kind="input"), inputs=mutable),
            "it writes new, an input that nothing updates",
        ),
        "slices that share an element": (halves(0, 3, last="l"), "l and r may share elements of p"),
        "slices that share an element, turned round": (halves(3, 0, last="l"), "r and l may share elements of p"),
        "a slice in a slice": (halves(0, 1, sizes=(4, 1), last="l"), "l and r may share elements of p"),
        "slices of one place": (halves(0, 0, sizes=(4, 1), last="l"), "may share elements of p"),
        "symbolic slices that share": (halves(0, "N", "2*N", ("N + 1", "N"), last="r"), "l and r may share elements of p"),
        "a slice of a slice that shares": (
            plan(launch("x", "l", 0), launch("x", "s", 0), launch("l", "y", 1), buffer("p", size=8), part("l", "p", 4), part("q", "p", 2, 6), part("s", "q", 1)),
            "s and l may share elements of p",
        ),
        "a result that is an operand": (plan(launch("x a", "a", 0), launch("a", "y", 1), a), "to a: it reads and writes a"),
        "a read of what nothing writes": (plan(launch("x a", "y"), a), "it reads a, but nothing writes 4 of its elements"),
        "a read of an output that nothing writes": (plan(launch("x b", "y"), buffer("b", "output")), "it reads b, but nothing writes 4 of its elements"),
        "a read of half": (halves(0, 4, size=12), "it reads p, but nothing writes 4 of its elements"),
        "an order turned round": (plan(launch("a", "y", 0), launch("x", "a", 0), a), "to y: it stands before to a"),
        "an output that nothing writes": (plan(launch("x", "a"), a), "output 0: nothing writes y"),
        "a wave before the first": (chain(-2, 1, 2), "main: wave -2"),
        "a wave that falls": (plan(launch("x", "a", 1), launch("x", "b", 0), launch("a b", "y", 2), a, b), "to b: wave 0 stands after wave 1"),
        "a dependence in one wave": (chain(0, 0, 2), "to b: it is in wave 0 and to a, which it follows, in wave 0"),
        "a copy beside others": (plan(replace(run(Copy(), "x", "y"), beside=True)), "run at the same time"),
        "uses that begin elsewhere": (chain(first_use=1, last_use=1), "a: it is said to be used from 1 to 1; instructions 0 to 1"),
        "uses that end elsewhere": (chain(first_use=0, last_use=2), "a: it is said to be used from 0 to 2"),
        "half a use": (chain(first_use=0), "a: it is said to be used from 0 to -1"),
        "another half": (chain(last_use=1), "a: it is said to be used from -1 to 1"),
        "alignment 0": (chain(alignment=0), "a: alignment 0"),
        "alignment 48": (chain(alignment=48), "a: alignment 48"),
        "alignment below 0": (chain(alignment=-64), "a: alignment -64"),
        "an offset between": (at_offsets(0, 96), "b: offset 96 is not a multiple of 64"),
        "an offset without an order": (chain(-1, -1, -1, arena_offset=0), "a: it has an offset, and the instructions have no order"),
        "an offset of an unknown size": (
            plan(launch("x n", "a", 0), launch("a", "y", 1), buffer("a", size="N", arena_offset=0), buffer("n", "input", "N"), inputs=(port(), port("n", "N")), ids="x n"),
            "a: it has an offset but its size N is not a number",
        ),
        "one offset": (at_offsets(0, 0), "b: it shares arena bytes 0..64 with a while both are in use"),
        "offsets that share a byte": (
            plan(*CHAIN[:3], replace(buffer("a", arena_offset=0, size=17)), replace(b, arena_offset=64)), "b: it shares arena bytes 64..128 with a"),
        "offsets that share, the other way round": (
            plan(*CHAIN[:3], replace(a, arena_offset=64), buffer("b", size=17, arena_offset=0)), "a: it shares arena bytes 64..128 with b"),
        "a symbol of a shape": (plan(*CHAIN, replace(buffer("c", size="Q"))), "c: size symbol 'Q' has no value"),
        "a symbol of an offset": (plan(*CHAIN, part("c", "a", "min(Q, 2)", 1)), "c: size symbol 'Q' has no value"),
        "a symbol of an argument": (plan(run(Launch("k", (SizeArg(var("Q")),)), "x", "y")), "step: size symbol 'Q' has no value"),
        "a symbol of a grid": (plan(run(Launch("k", (), (var("Q"), var("Q"))), "x", "y")), "step: size symbol 'Q' has no value"),
        "a symbol of a tensor map": (plan(launch("x", "a"), run(Launch("k", (tensor_map,)), "a", "y", 1), a), "size symbol 'Q' has no value"),
        "a symbol of a condition": (plan(run(Choose((Case((Condition(var("Q")),), ()), Case((), ()))), "x", "y")), "size symbol 'Q' has no value"),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(WRONG))
def test_a_broken_rule_is_the_one_fault(what: str) -> None:
    main, why = WRONG[what]
    found = faults(main)
    assert len(found) == 1 and why in found[0], found


def test_one_place_is_taken_once() -> None:
    steps = (launch("x", "a", 0), launch("a", "b c", 1), launch("b c", "y", 2))
    found = faults(plan(*steps, a, replace(b, in_place_of="a"), buffer("c", in_place_of="a")))
    assert found == [f"main: {id}: 2 buffers stand in place of a" for id in "bc"]


def test_slices_of_each_other_have_no_place() -> None:
    found = faults(plan(*CHAIN, part("c", "d", 0), part("d", "c", 0)))
    assert found == ["main: c: a buffer is a slice of itself", "main: d: a buffer is a slice of itself"]


def test_every_program_is_checked_and_the_rest_of_a_plan_only_where_its_buffers_are_known() -> None:
    bad, worse = plan(launch("x", "a"), a), plan(launch("q", "a"), a)
    assert faults(plan(*CHAIN), other=bad) == ["other: output 0: nothing writes y"]
    assert faults(bad, other=worse) == [
        "main: output 0: nothing writes y",
        "other: to a: q is not a buffer",
        "other: to a: q is not a buffer",
    ]


def with_constants(main: ExecutionPlan, setup: ExecutionPlan | None = None, *names: str) -> list[str]:
    programs = {"main": main} if setup is None else {"main": main, "setup": setup}
    module = Module(programs, constants={n: Tensor(np.zeros(4, np.float32)) for n in names})
    return [f"{d.at}: {d.why}" for d in verify(module)]


def test_constants_are_the_document_s_or_made_by_setup() -> None:
    c = buffer("c", "constant")
    reads = plan(launch("x c", "y"), c, inputs=(port(), port("w", storage="const_pool")), ids="x c")
    makes = plan(launch("x", "y"), buffer("x", "constant"), inputs=(port("v"),), outputs=(Output("w", F32, shape(4)),))
    missing = "main: c: the constant 'w' is not in the document"
    assert with_constants(reads) == [missing]
    assert with_constants(reads, None, "w") == []
    assert with_constants(reads, makes, "v") == []
    assert with_constants(reads, makes) == ["setup: x: the constant 'v' is not in the document"]


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"storage": "held"}, True),
        ({"storage": "argument"}, False),
        ({"storage": "held", "mutability": "mutable"}, False),
    ],
)
def test_setup_reads_constants_and_held_inputs(fields: dict[str, str], fits: bool) -> None:
    main = plan(launch("x", "y"), inputs=(port(**fields),))
    setup = plan(launch("x", "y"), outputs=(Output("w", F32, shape(4)),))
    assert with_constants(main, setup) == ([] if fits else ["setup: x: an input of setup lies in a buffer of kind input"])
