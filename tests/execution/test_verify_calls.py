"""Each rule about calls in an execution plan: a call that breaks it has that one fault, and calls at its edge have none."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.signature import Equation, Input, Output, Signature
from tatami.execution.ir import BufferInfo, Call, Copy, ExecutionPlan, Host, If, Instruction, Loop, Op, Operation
from tests.execution.test_verify_rules import F32, a, b, buffer, faults, launch, mutable, plan, port, run

replace = msgspec.structs.replace
BOOL, I64 = DType.bool, DType.i64


def typed(id: str, kind: str, dtype: DType, *dims: int | str) -> BufferInfo:
    count = expr(1)
    for d in shape(*dims):
        count = count * d
    return BufferInfo(id, dtype, shape(*dims), count, kind)  # type: ignore[arg-type]


def program(inputs: tuple[Input, ...], outputs: tuple[Output, ...], *steps: Instruction, **fields: object) -> ExecutionPlan:
    """Results are written by one kernel that reads all inputs, unless `steps` are given."""
    ids, gives = tuple(f"i{k}" for k in range(len(inputs))), tuple(f"o{k}" for k in range(len(outputs)))
    ends = [typed(id, "input", p.dtype, *p.shape) for id, p in zip(ids, inputs)]  # type: ignore[arg-type]
    ends += [typed(id, "output", p.dtype, *p.shape) for id, p in zip(gives, outputs)]  # type: ignore[arg-type]
    made = steps or (launch(" ".join(ids), " ".join(gives)),)
    return ExecutionPlan(Signature(inputs, outputs, **fields), made, tuple(ends), ids, gives)  # type: ignore[arg-type]


def takes(name: str, dtype: DType, *dims: int | str) -> Input:
    return Input(name, dtype, shape(*dims))


def gives(name: str, dtype: DType, *dims: int | str) -> Output:
    return Output(name, dtype, shape(*dims))


same = program((takes("u", F32, 4),), (gives("v", F32, 4),))
of_n = program((takes("u", F32, "n"),), (gives("v", F32, "n"),))


to_m = program((takes("u", F32, "n"),), (gives("v", F32, "m"),), run(Host("nonzero", ()), "i0", "o0"))


def calls(op: Operation, **callees: ExecutionPlan) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:
    return plan(run(op, "x", "y")), callees


def of_sizes(mine: str, sizes: dict[str, str], equations: tuple[tuple[str, str], ...] = (), its: ExecutionPlan = of_n) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:  # fmt: skip
    """x and y have `mine` elements, and the callee its n."""
    ends = (buffer("x", "input", mine), buffer("y", "output", mine))
    main = plan(run(Call("f", {s: expr(v) for s, v in sizes.items()}), "x", "y"), *ends, inputs=(port(size=mine),), outputs=(Output("y", F32, shape(mine)),))  # fmt: skip
    assumed = tuple(Equation(expr(l), expr(r)) for l, r in equations)
    return replace(main, signature=replace(main.signature, assumptions=assumed)), {"f": its}


STATE = (takes("turn", I64), takes("go", BOOL), takes("s", F32, 4))
body = program(STATE, (gives("go", BOOL), gives("s", F32, 4)))
scan = program(STATE, (gives("go", BOOL), gives("s", F32, 4), gives("row", F32, 4)))
without_go = program((STATE[0], STATE[2]), (gives("go", BOOL), gives("s", F32, 4)))


def looped(op: Loop, its: ExecutionPlan, reads: tuple[str, ...] = ("", "", "x"), writes: str = "y", *more: BufferInfo, **fields: Any) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:  # fmt: skip
    return plan(Instruction(op, reads, tuple(writes.split()), "step", 0), *more, **fields), {"f": its}


def branched(
    reads: str, then: ExecutionPlan = same, otherwise: ExecutionPlan = same
) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:
    c = typed("c", "input", BOOL)
    main = plan(run(If("f", "g"), reads, "y"), c, inputs=(port(), takes("c", BOOL)), ids="x c")
    return main, {"f": then, "g": otherwise}


def copies(reads: str, writes: str, *more: BufferInfo) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:
    steps = (launch("x", "a"), run(Copy(), reads, writes, 1), launch("x", "b y" if "y" not in writes else "b"))
    return plan(*sorted(steps, key=lambda s: s.wave), a, replace(b, kind="arena"), *more), {}


def nested(depth: int) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:
    """main calls p1, which calls p2, and so on: the last of them makes nothing but a kernel."""
    steps = {
        f"p{k}": program((takes("u", F32, 4),), (gives("v", F32, 4),), run(Call(f"p{k + 1}"), "i0", "o0"))
        for k in range(1, depth)
    }
    return plan(run(Call("p1"), "x", "y")), {**steps, f"p{depth}": same}


def circle(last: str) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:
    main, programs = nested(3)
    return main, {**programs, "p3": replace(same, instructions=(run(Call(last), "i0", "o0"),))}


def operation(name: str, dims: tuple[int, ...] = (4,), dtype: DType = F32, **attrs: object) -> tuple[ExecutionPlan, dict[str, ExecutionPlan]]:  # fmt: skip
    y = typed("y", "output", dtype, *dims)
    return plan(run(Op(name, attrs), "x", "y"), y, outputs=(gives("y", dtype, *dims),)), {}


Planned = tuple[ExecutionPlan, dict[str, ExecutionPlan]]
ACCEPTED: Final[MappingProxyType[str, Planned]] = MappingProxyType(
    {
        "a call": calls(Call("f"), f=same),
        "a copy": copies("a", "y"),
        "a call with a size": of_sizes("N", {"n": "N"}),
        "a size that is not given": of_sizes(
            "N", {"n": "N"}, its=replace(of_n, signature=replace(of_n.signature, defaults={"k": 1}))
        ),
        "a size of a default": of_sizes(
            "N", {"n": "N", "k": "3"}, its=replace(of_n, signature=replace(of_n.signature, defaults={"k": 1}))
        ),
        "a branch": branched("c x"),
        "a loop": looped(Loop("f", 1, 0), body),
        "a loop that counts": looped(Loop("f", 1, 0), without_go),
        "a loop that counts to what it is given": looped(
            Loop("f", 1, 0),
            without_go,
            ("t", "c", "x"),
            "y",
            typed("t", "input", I64),
            typed("c", "input", BOOL),
            inputs=(port(), takes("t", I64), takes("c", BOOL)),
            ids="x t c",
        ),
        "a body of a kernel": operation("kernel_body"),
        "a loop that scans": looped(Loop("f", 1, 1), scan, ("", "", "x"), "y a", typed("a", "arena", F32, 9, 4)),
        "ten deep": nested(10),
        "a circle": circle("p1"),
        "a circle of one": circle("p3"),
        "an operation": operation("relu"),
    }
)


@pytest.mark.parametrize("what", list(ACCEPTED))
def test_what_breaks_no_rule_is_accepted(what: str) -> None:
    main, others = ACCEPTED[what]
    assert faults(main, **others) == []


def sized(main: ExecutionPlan, **defaults: int) -> ExecutionPlan:
    return replace(main, signature=replace(main.signature, defaults=defaults))


updating = program(mutable, (Output("y", F32, shape(4), updates="x"),))
WRONG: Final[MappingProxyType[str, tuple[Planned, str]]] = MappingProxyType(
    {
        "a copy of two": (copies("a x", "y"), "a copy has one input and one output"),
        "a copy into two": (copies("a", "y c", buffer("c")), "a copy has one input and one output"),
        "a copy of nothing": (copies("", "y"), "a copy has one input and one output"),
        "a copy into nothing": (copies("a", ""), "a copy has one input and one output"),
        "a copy into more": (copies("a", "c", buffer("c", size=8)), "a copy between buffers of different dtype or size"),
        "a copy into another type": (copies("a", "c", typed("c", "arena", DType.i32, 4)), "a copy between buffers of different"),
        "a program that is not there": (calls(Call("g"), f=same), "it calls a program that does not exist"),
        "a branch that is not there": ((branched("c x")[0], {"f": same}), "it calls a program that does not exist"),
        "a size that the callee does not have": (of_sizes("N", {"n": "N", "k": "N"}), "the called program has no size symbol 'k'"),
        "a size of another value": (of_sizes("N", {"n": "N + 1", "m": "N"}, its=to_m), "x is [N], the called program has n there, which is N + 1"),
        "a number of another value": (calls(Call("f"), f=program((takes("u", F32, 5),), (gives("v", F32, 4),))), "x is [4], the called"),
        "a result of another value": (calls(Call("f"), f=program((takes("u", F32, 4),), (gives("v", F32, 5),))), "y is [4], the called"),
        "a branch without an argument": (branched("c"), "0 arguments for 1 inputs"),
        "too many arguments": (branched("c x x"), "2 arguments for 1 inputs"),
        "an argument of another type": (calls(Call("f"), f=program((takes("u", BOOL, 4),), (gives("v", F32, 4),))), "argument x is fp32[4]"),
        "an argument of another rank": (calls(Call("f"), f=program((takes("u", F32, 5, 1),), (gives("v", F32, 4),))), "argument x is fp32[4]"),
        "an argument of a higher rank": (calls(Call("f"), f=program((takes("u", F32),), (gives("v", F32, 4),))), "argument x is fp32[4]"),
        "too many results": ((plan(run(Call("f"), "x", "y a"), a), {"f": same}), "2 values from a program that gives 1"),
        "a first result of another size": (
            (plan(run(Call("f"), "x", "a y"), a), {"f": program((takes("u", F32, 4),), (gives("v", F32, 5), gives("w", F32, 4)))}), "a is [4], the called"),
        "a loop with fewer results than it has": (looped(Loop("f", 1, 1), scan), "the body gives 3 values, the loop has 1"),
        "eleven deep behind a branch": (
            (plan(run(If("p1", "f"), "c x", "y"), typed("c", "input", BOOL), inputs=(port(), takes("c", BOOL)), ids="x c"), {**nested(11)[1], "f": same}),
            "programs call each other more than 10 deep"),
        "an operation beside a kernel": (
            (plan(launch("x", "a"), run(Op("relu"), "a", "y", 1), a, typed("y", "output", F32, 5), outputs=(gives("y", F32, 5),)), {}),
            "its results are fp32[4], its buffers fp32[5]"),
        "too few results": (calls(Call("f"), f=program((takes("u", F32, 4),), (gives("v", F32, 4), gives("w", F32, 4)))), "1 values from a program that gives 2"),
        "a loop with more carried than its body gives": (
            looped(Loop("f", 2, 0), body, ("", "", "x"), "y"), "the body gives 2 values, the loop has 1"),
        "a loop with fewer carried than its body gives": (looped(Loop("f", 0, 0), body), "the body gives 2 values, the loop has 1"),
        "a loop with more results than it carries": (
            looped(Loop("f", 1, 0), body, ("", "", "x"), "y a", a), "the body gives 2 values, the loop has 2"),
        "a loop that does not take what is scanned": (looped(Loop("f", 1, 0), scan), "the body gives 3 values, the loop has 1"),
        "a loop that takes what is not scanned": (looped(Loop("f", 1, 1), body), "the body gives 2 values, the loop has 1"),
        "a loop of a number for its condition": (
            looped(Loop("f", 1, 0), program(STATE, (gives("go", I64), gives("s", F32, 4)))), "the first value of a loop body is its condition"),
        "a loop whose state has another size": (
            looped(Loop("f", 1, 0), program((*STATE[:2], takes("s", F32, 5)), (gives("go", BOOL), gives("s", F32, 4)))), "x is [4], the called"),
        "a loop whose result has another size": (
            looped(Loop("f", 1, 0), program(STATE, (gives("go", BOOL), gives("s", F32, 5)))), "y is [4], the called"),
        "rows of another size": (
            looped(Loop("f", 1, 1), scan, ("", "", "x"), "y a", typed("a", "arena", F32, 9, 5)), "a is [9, 5], the called program has 4 there"),
        "a size without a value": (calls(Call("f"), f=of_n), "the called program's size 'n' has no value"),
        "a program that updates": (calls(Call("f"), f=replace(updating, instructions=(), output_buffers=("i0",))), "the called program updates one of its inputs"),
        "eleven deep": (nested(11), "programs call each other more than 10 deep"),
        "an operation that gives another shape": (operation("relu", (5,)), "its results are fp32[4], its buffers fp32[5]"),
        "an operation that gives another type": (operation("relu", (4,), DType.i32), "its results are fp32[4], its buffers i32[4]"),
        "an operation that is not there": (operation("system"), "system"),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(WRONG))
def test_a_broken_rule_is_the_one_fault(what: str) -> None:
    (main, others), why = WRONG[what]
    found = list(dict.fromkeys(faults(main, **others)))  # both programs of a branch say the same
    assert len(found) == 1 and why in found[0], found


def test_a_second_fault_of_a_call() -> None:
    main, others = looped(Loop("f", 1, 0), program(STATE, ()), ("", "", "x"))
    assert [f.partition("step: ")[2][:28] for f in faults(main, **others)] == [
        "the body gives 0 values, the",
        "the first value of a loop bo",
    ]


def test_sizes_that_equations_make_one_fit() -> None:
    main, others = of_sizes("N", {"n": "M"}, (("N", "M"),))
    with_m = replace(main, signature=replace(main.signature, defaults={"M": 1}))
    assert faults(with_m, **others) == []
    assert faults(sized(of_sizes("N", {"n": "M"})[0], M=1), **others) != []


@pytest.mark.parametrize(
    ("mine", "its", "equation"), [("N*M", "M*M", ("N*M", "M*M")), ("2*N", "2*M", ("N", "M")), ("N + M", "M + N", ("N", "N"))]
)
def test_sizes_fit_by_an_equation_and_by_what_follows_of_it(mine: str, its: str, equation: tuple[str, str]) -> None:
    main, others = of_sizes(mine, {"n": its}, (equation,))
    assert faults(sized(main, M=1, N=1), **others) == []


def test_sizes_that_a_run_finds_are_compared_then() -> None:
    called = plan(run(Call("f", {"n": expr(4)}, ("M",)), "x", "a"), launch("a", "y", 1), buffer("a", size="M"))
    assert faults(called, f=of_n) == []


def test_a_symbol_that_a_run_of_the_callee_finds_needs_no_value() -> None:
    callee = program((takes("u", F32, 4),), (gives("v", F32, "M"),), run(Host("nonzero", ("M",)), "i0", "o0"))
    main = plan(run(Call("f", {}, ("K",)), "x", "a"), launch("a", "y", 1), buffer("a", size="K"))
    assert faults(main, f=callee) == []


def test_a_size_that_varies_needs_no_value() -> None:
    its = program((*STATE[:2], takes("s", F32, "n")), (gives("go", BOOL), gives("s", F32, "n")))
    for op, wanted in ((Loop("f", 1, 0, varying=("n",)), 0), (Loop("f", 1, 0), 1)):
        main, others = looped(op, its)
        assert len(faults(main, **others)) == wanted


def test_a_wrong_size_is_named_once_per_buffer() -> None:
    its = program((takes("u", F32, 5, 5),), (gives("v", F32, 4),))
    x = typed("x", "input", F32, 4, 4)
    main = plan(run(Call("f"), "x", "y"), x, inputs=(takes("x", F32, 4, 4),))
    assert len(faults(main, f=its)) == 1


def test_constants_of_a_callee_are_no_arguments() -> None:
    callee = program((takes("u", F32, 4), Input("w", F32, shape(4), storage="const_pool")), (gives("v", F32, 4),))
    kept = replace(callee, buffers=tuple(replace(x, kind="constant") if x.id == "i1" else x for x in callee.buffers))
    found = faults(plan(run(Call("f"), "x", "y")), f=kept)
    assert found == ["f: i1: the constant 'w' is not in the document"]


def test_sizes_of_operations_are_compared_as_they_run() -> None:
    """The reference binds the sizes of each call."""
    callee = replace(of_n, instructions=(run(Op("relu"), "i0", "o0"),))
    main, _ = of_sizes("N", {"n": "N + 1"})
    assert faults(main, f=callee) == []
