"""Each rule of the verifier of tiny modules: a program that breaks it has that one fault, and programs at its edge have none."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pytest

from tatami.core.custom.verbatim import KernelCode, VerbatimCode
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, Output, Signature
from tatami.tiny.ir import (
    CallOp,
    CastOp,
    ConstOp,
    Elementwise,
    ExpandOp,
    GatherOp,
    InputOp,
    Node,
    Op,
    PadOp,
    PermuteOp,
    Program,
    ReshapeOp,
    ResultOp,
    ResultType,
    ScatterOp,
    ShrinkOp,
    SizeOp,
    ViewOp,
)
from tatami.tiny.verify import verify
from tests.tiny.build import BOOL, F16, F32, I32, I64, Build

replace = msgspec.structs.replace


def faults(module: Module[Program] | Program, form: str = "tiny") -> list[str]:
    found = verify(module if isinstance(module, Module) else Module({"main": module}), form)
    return [f"{d.at}: {d.why}" for d in found]


def node(op: Op, *src: str, id: str = "n9", dtype: DType = F32, sizes: tuple[Any, ...] = (4,)) -> Node:
    return Node(id, op, src, dtype, shape(*sizes))


def built(make: Callable[[Build], str], *more: Node, **signature: Any) -> Program:
    """A program of one result, with nodes after it and other fields of the signature."""
    b = Build()
    p = b.program(make(b))
    return replace(p, nodes=(*p.nodes, *more), signature=replace(p.signature, **signature))


def copied(*more: Node, **signature: Any) -> Program:
    """y = neg(x) of 4 numbers; n0 is x, n1 is y."""
    return built(lambda b: b.fn("neg", b.input("x", F32, 4)), *more, **signature)


def of_sizes(*more: Node, sizes: tuple[Any, ...] = ("N",), **signature: Any) -> Program:
    return built(lambda b: b.fn("neg", b.input("x", F32, *sizes)), *more, **signature)


def viewed(index: str, sizes: tuple[Any, ...] = (4,), of: tuple[Any, ...] = (4,), equations: tuple[Equation, ...] = (), **signature: Any) -> Program:  # fmt: skip
    """A view of x, one expression per axis of it, separated by semicolons."""
    op = ViewOp(shape(*sizes), tuple(expr(e) for e in index.split(";")))
    return of_sizes(node(op, "n0", sizes=sizes), sizes=of, assumptions=equations, **signature)


def calling(op: CallOp, *src: str, **others: Program) -> Module[Program]:
    call = replace(node(op, *src), dtype=op.results[0].dtype, shape=op.results[0].shape) if op.results else node(op, *src)
    return Module({"main": copied(call, node(ResultOp(0), "n9", id="n10")), **others})


numbers = (ResultType(F32, shape(4)),)
sorted_ = (ResultType(F32, shape(4)), ResultType(I64, shape(4)))
body = KernelCode(c=VerbatimCode("y[0] = x[0];"))
unary = copied()
flag = node(ConstOp(True), id="n8", dtype=BOOL, sizes=())
inside = Equation(expr("max(3, N - 1)"), expr("N - 1"))

ACCEPTED: Final[MappingProxyType[str, Any]] = MappingProxyType(
    {
        "a copy": copied(),
        "a call": calling(CallOp("program", ("f",), numbers), "n0", f=unary),
        "a branch": Module({"main": copied(flag, node(CallOp("if", ("f", "f"), numbers), "n8", "n0")), "f": unary}),
        "a call of a program with the name of a routine": calling(CallOp("program", ("sort",), numbers), "n0", sort=unary),
        "a gather at places": of_sizes(node(GatherOp(shape("N"), (expr("N - 1 - i0"),)), "n0", sizes=("N",))),
        "a scatter of more axes": built(lambda b: b.input("x", F32, 4), node(ConstOp(1.0), id="n7", sizes=()), node(ExpandOp(shape(3, 4), ()), "n7", id="n8", sizes=(3, 4)), node(ScatterOp("set", (expr("i1"),)), "n0", "n8")),
        "a host step": calling(CallOp("host", ("unique",), numbers), "n0"),
        "a routine": calling(CallOp("routine", ("sort",), sorted_), "n0"),
        "a body": calling(CallOp("routine", ("custom",), numbers, code=body), "n0"),
        "a size that a step finds": copied(node(CallOp("host", ("f",), (ResultType(F32, shape("M")),), new_symbols=("M",)), "n0", sizes=("M",)), node(ResultOp(0), "n9", id="n10", sizes=("M",))),
        "a size of a default": copied(node(SizeOp(expr("D")), dtype=I64, sizes=()), defaults={"D": 3}),
        "a size to be bound": copied(node(SizeOp(expr("D")), dtype=I64, sizes=()), must_bind=("D",)),
        "a product that is widened": built(lambda b: b.input("x", F16, 4), node(Elementwise("mul"), "n0", "n0")),
        "a product of integers that is widened": built(lambda b: b.input("x", DType.i8, 4), node(Elementwise("mul"), "n0", "n0", dtype=I32)),
        "a view": viewed("3 - i0"),
        "a view of a size that an equation makes equal": viewed("i0", ("N",), ("M",), (Equation(expr("N"), expr("M")),), defaults={"N": 1}),
        "a view by digits": viewed("i0//2", (8,)),
        "a view that an equation keeps inside": viewed("i0 + 2", (2,), ("N",), (inside,)),
        "a view of nothing": viewed("i0 + 9", (0,)),
        "a view of sizes to be bound": viewed("i0 + K", (2,), (4,), defaults={"K": 2}, must_bind=("K",)),
        "a gather": copied(node(ConstOp(0), id="n8", dtype=I64, sizes=()), node(GatherOp((), (None,)), "n0", "n8", sizes=())),
        "an update": built(lambda b: b.fn("neg", b.input("x", F32, 4, mutability="mutable")), outputs=(Output("y", F32, shape(4), updates="x"),)),
        "sizes that an equation makes equal": built(lambda b: b.input("x", F32, "N", 4), outputs=(Output("y", F32, shape("M", 4)),), defaults={"M": 1}, assumptions=(Equation(expr("M"), expr("N")),)),
        "sizes that it makes equal the other way": built(lambda b: b.input("x", F32, "N", 4), outputs=(Output("y", F32, shape("M", 4)),), defaults={"M": 1}, assumptions=(Equation(expr("N"), expr("M")),)),
        "nothing": built(lambda b: b.input("x", F32, 0)),
        "a pad that crops all": copied(node(PadOp(((expr(-2), expr(-2)),)), "n0", sizes=(0,))),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(ACCEPTED))
def test_what_breaks_no_rule_is_accepted(what: str) -> None:
    assert faults(ACCEPTED[what]) == []


def test_conditions_are_asked_of_normalised_programs() -> None:
    p = of_sizes(node(ShrinkOp(shape(0), shape(4), (1,)), "n0"))
    assert [w.partition(" is needed")[2] for w in faults(p)] == [" and not among the signature's assumptions"]
    assert faults(p, "tiny@imported") == []


def test_conditions_of_numbers_hold() -> None:
    p = copied(node(ShrinkOp(shape(0), shape(5), (1,)), "n0", sizes=(5,)))
    assert len(faults(p)) == 1


def two(left: tuple[Any, ...], right: tuple[Any, ...]) -> Program:
    return built(
        lambda b: (b.input("x", F32, *left), b.input("y", F32, *right))[0], node(Elementwise("add"), "n0", "n1", sizes=left)
    )


WRONG: Final[MappingProxyType[str, tuple[Any, str]]] = MappingProxyType(
    {
        "no main": (Module({"f": unary}), "programs: there is no program main"),
        "an axis for a size": (of_sizes(sizes=("r1",)), "r1: this name is taken by axes"),
        "a function for a size": (of_sizes(sizes=("min",)), "min: this name is taken by axes"),
        "a size below 0": (copied(inputs=(Input("x", F32, shape(4)), Input("z", F32, shape(-1)))), "z: a size is -1"),
        "an input of no type": (copied(inputs=(Input("x", F32, shape(4)), Input("z", DType.unknown, shape(4)))), "z: its dtype was never decided"),
        "two nodes of one id": (copied(node(ConstOp(1.0), id="n0", sizes=())), "n0: two nodes have this id"),
        "an operand after the node": (copied(node(Elementwise("neg"), "n10"), node(Elementwise("neg"), "n0", id="n10")), "n9: reads n10, which is defined after"),
        "a node that reads itself": (copied(node(Elementwise("neg"), "n9")), "n9: the node reads itself"),
        "an operand that is not there": (copied(node(Elementwise("neg"), "q")), "n9: src 'q' is not the id of any node"),
        "an input of another name": (copied(node(InputOp("q"))), "n9: INPUT 'q' is not in the signature"),
        "an input of another type": (copied(node(InputOp("x"), dtype=F16)), "n9: the node declares fp16, the signature gives fp32"),
        "an input of another shape": (copied(node(InputOp("x"), sizes=(5,))), "n9: the node declares shape [5], the signature gives [4]"),
        "an input of another size": (of_sizes(node(InputOp("x"), sizes=("M",)), defaults={"M": 1}), "n9: axis 0 is M where the signature has N"),
        "another type": (copied(node(Elementwise("neg"), "n0", dtype=F16)), "n9: the node declares fp16, its op gives fp32"),
        "a permutation of another shape": (copied(node(PermuteOp((0,)), "n0", sizes=(5,))), "n9: the node declares shape [5], its op gives [4]"),
        "a product of as many bytes": (built(lambda b: b.input("x", F16, 4), node(Elementwise("mul"), "n0", "n0", dtype=DType.bf16)), "n9: the node declares bf16"),
        "another size of a higher rank": (of_sizes(node(Elementwise("neg"), "n0", sizes=("M", 1)), defaults={"M": 1}), "n9: the node declares shape [M, 1]"),
        "another size of a lower rank": (of_sizes(node(Elementwise("neg"), "n0", sizes=("M",)), sizes=("N", 1), defaults={"M": 1}), "n9: the node declares shape [M]"),
        "a second size": (of_sizes(node(Elementwise("neg"), "n0", sizes=("N", "M")), sizes=("N", "K"), defaults={"M": 1}), "n9: axis 1 is M where its op has K"),
        "a result of nothing": (copied(node(ResultOp(0))), "n9: "),
        "a routine of no target": (calling(CallOp("routine", (), numbers), "n0"), "n9: a routine of 0 targets"),
        "a node of a taken id with a fault": (copied(node(Elementwise("neg"), "q", id="n0")), "n0: two nodes have this id"),
        "another rank": (copied(node(Elementwise("neg"), "n0", sizes=(4, 1))), "n9: the node declares shape [4, 1], its op gives [4]"),
        "another number": (of_sizes(node(Elementwise("neg"), "n0", sizes=(4,))), "n9: the node declares shape [4], its op gives [N]"),
        "a number for a size": (copied(node(Elementwise("neg"), "n0", sizes=("M",)), defaults={"M": 1}), "n9: the node declares shape [M], its op gives [4]"),
        "a widened sum": (built(lambda b: b.input("x", F16, 4), node(Elementwise("add"), "n0", "n0")), "n9: the node declares fp32, its op gives fp16"),
        "a product of floats that is an integer": (built(lambda b: b.input("x", F16, 4), node(Elementwise("mul"), "n0", "n0", dtype=I32)), "n9: the node declares i32"),
        "a widened negation": (built(lambda b: b.input("x", F16, 4), node(Elementwise("neg"), "n0")), "n9: the node declares fp32"),
        "a product of another shape": (built(lambda b: b.input("x", F16, 4), node(Elementwise("mul"), "n0", "n0", sizes=(5,))), "n9: the node declares fp32"),
        "a product of integers in floats": (built(lambda b: b.input("x", I32, 4), node(Elementwise("mul"), "n0", "n0")), "n9: the node declares fp32"),
        "a product of flags in integers": (
            built(lambda b: b.input("x", BOOL, 4), node(Elementwise("mul"), "n0", "n0", dtype=I32)), "n9: "),
        "a narrowed product": (copied(node(Elementwise("mul"), "n0", "n0", dtype=F16)), "n9: the node declares fp16"),
        "a size of nothing": (copied(node(SizeOp(expr("Q")), dtype=I64, sizes=())), "n9: the size symbol Q stands in no input"),
        "a border of nothing known": (copied(node(PadOp(((expr("Q"), expr("-Q")),)), "n0")), "n9: the size symbol Q stands in no input"),
        "a cut of nothing known": (copied(node(ShrinkOp(shape("min(Q, 0)"), shape("4 + min(Q, 0)"), (1,)), "n0")), "n9: the size symbol Q stands"),
        "a shape of nothing known": (of_sizes(node(ReshapeOp(shape("Q")), "n0", sizes=("Q",)), assumptions=(Equation(expr("N"), expr("Q")),)), "n9: the size symbol Q"),
        "a view of nothing known": (viewed("min(Q, 0)*i0"), "n9: the size symbol Q stands in no input"),
        "a gather over an axis too many": (
            copied(node(GatherOp(shape(4), (expr("i1"),)), "n0")), "n9: the map names i1, the rank is 1"),
        "a scatter over an axis too many": (
            copied(node(ScatterOp("set", (expr("i1"),)), "n0", "n1")), "n9: the map names i1, the rank is 1"),
        "a crop of more than there is": (
            copied(node(PadOp(((expr(-3), expr(-2)),)), "n0", sizes=(-1,))), "n9: PAD crops axis 0 of size 4 by 5"),
        "a view over an axis too many": (viewed("i1"), "n9: index_map[0] names i1, the result has rank 1"),
        "a view by a product of axes": (viewed("i0*i1", (2, 2), (4,)), "n9: index_map[0] = i0*i1 is not affine"),
        "a view by a quotient by an axis": (viewed("i0//(1 + i1)", (2, 2), (4,)), "is not affine with floordiv"),
        "a view by a quotient of a product": (viewed("(i0*i1)//2", (2, 2), (4,)), "is not affine with floordiv"),
        "a view by an axis times a quotient": (viewed("i0*(i1//2)", (2, 2), (4,)), "is not affine with floordiv"),
        "a view by a least": (viewed("min(i0, 3)"), "is not affine with floordiv"),
        "a view past the end": (viewed("i0 + 1"), "n9: index_map[0] = i0 + 1 is not proved"),
        "a view before the start": (viewed("i0 - 1"), "n9: index_map[0] = i0 - 1 is not proved"),
        "a view past the second end": (viewed("i0;i1 + 1", (4, 4), (4, 4)), "n9: index_map[1] = i1 + 1 is not proved"),
        "a view that another equation keeps inside": (viewed("i0 + 3", (2,), ("N",), (inside,)), "n9: index_map[0] = i0 + 3 is not proved"),
        "a view that no equation keeps inside": (viewed("(3*i0)//2", (4,), (4,)), "n9: index_map[0] = "),
        "code of no routine": (calling(CallOp("program", ("f",), numbers, code=body), "n0", f=unary), "n9: the program f has `code`"),
        "code of another routine": (calling(CallOp("routine", ("sort",), sorted_, code=body), "n0"), "n9: the routine sort has `code`"),
        "code of a host step": (calling(CallOp("host", ("custom",), numbers, code=body), "n0"), "n9: the host custom has `code`"),
        "a routine without its code": (calling(CallOp("routine", ("custom",), numbers), "n0"), "n9: it has no `code`"),
        "a routine of two targets": (calling(CallOp("routine", ("sort", "x"), (*numbers, *numbers)), "n0"), "n9: a routine of 2 targets"),
        "a host step of no target": (calling(CallOp("host", (), numbers), "n0"), "n9: a host of 0 targets"),
        "a routine of other results": (calling(CallOp("routine", ("sort",), (*numbers, *numbers)), "n0"), "n9: sort of fp32 gives fp32 and i64"),
        "a program that is not there": (calling(CallOp("program", ("q",), numbers), "n0"), "n9: there is no program 'q'"),
        "an argument too few": (calling(CallOp("program", ("f",), numbers), f=unary), "n9: f takes 1 inputs, 0 are given"),
        "an argument too many": (calling(CallOp("program", ("f",), numbers), "n0", "n0", f=unary), "n9: f takes 1 inputs, 2 are given"),
        "fewer outputs than the signature's": (replace(unary, outputs=()), "outputs: 0 output ids for 1 outputs"),
        "more outputs than the signature's": (replace(unary, outputs=("n1", "n1")), "outputs: 2 output ids for 1 outputs"),
        "an output that is not there": (replace(unary, outputs=("q",)), "y0: its node 'q' does not exist"),
        "an output of another type": (copied(outputs=(Output("y", F16, shape(4)),)), "y: the output is declared fp16, its node n1 is fp32"),
        "an output of another shape": (copied(outputs=(Output("y", F32, shape(5)),)), "n1: the output is declared [5], its node gives [4]"),
        "an output of another rank": (copied(outputs=(Output("y", F32, shape(4, 1)),)), "n1: the output is declared [4, 1]"),
        "an output of a lower rank": (of_sizes(sizes=(4, 1), outputs=(Output("y", F32, shape(4)),)), "n1: the output is declared [4]"),
        "an output of another second size": (of_sizes(sizes=(4, 8), outputs=(Output("y", F32, shape(4, 9)),)), "n1: the output is declared [4, 9]"),
        "a view by a quotient by 0": (viewed("i0//K", defaults={"K": 0}, must_bind=("K",)), ""),
        "an update of nothing": (copied(outputs=(Output("y", F32, shape(4), updates="q"),)), "y: it updates 'q', which is not a mutable input"),
        "an update of what stays": (copied(outputs=(Output("y", F32, shape(4), updates="x"),)), "y: it updates 'x', which is not a mutable"),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(WRONG))
def test_a_broken_rule_is_the_one_fault(what: str) -> None:
    module, why = WRONG[what]
    found = faults(module, "tiny@imported" if "crop" in what else "tiny")
    assert len(found) == 1 and why in found[0], found


def test_two_inputs_of_one_name_are_found() -> None:
    assert "x: two inputs have this name" in faults(copied(inputs=(Input("x", F32, shape(4)),) * 2))


def test_a_branch_has_its_condition_before_its_arguments() -> None:
    for src, given in ((("n8",), 0), (("n8", "n0", "n0"), 2)):
        main = copied(flag, node(CallOp("if", ("f", "f"), numbers), *src))
        assert faults(Module({"main": main, "f": unary})) == [f"n9: f takes 1 inputs, {given} are given"] * 2


def test_faults_of_every_program_and_node_are_found() -> None:
    wrong = copied(
        node(Elementwise("neg"), "q"), node(Elementwise("neg"), "p", id="n10"), outputs=(Output("y", F16, shape(4)),)
    )
    found = faults(Module({"main": unary, "f": wrong}))
    assert [f.partition(":")[0] for f in found] == ["n9", "n10", "y"]
    signature = Signature((Input("x", F32, shape("i0")),), ())
    assert faults(Module({"main": unary, "f": Program(signature, (), ())})) == [
        "i0: this name is taken by axes (i0, r0, …) or functions"
    ]


def test_the_latest_nodes_are_suggested_for_one_that_is_not_there() -> None:
    more = (node(Elementwise("neg"), "n0", id=f"n{k}") for k in (2, 3))
    (d,) = verify(Module({"main": copied(*more, node(Elementwise("neg"), "q"))}))
    assert d.suggestion == "name an earlier node; the latest are n1, n2, n3"
    (d,) = verify(Module({"main": Program(Signature(), (node(Elementwise("neg"), "q"),), ())}))
    assert d.suggestion == "name an earlier node; the latest are none"


def test_a_patch_has_a_new_name() -> None:
    b = Build()
    x, y = b.input("x", F16, 4), b.input("y", F32, 4)
    p = b.program(x)
    taken = Node("n9_0", CastOp(F32), (x,), F32, shape(4))
    wrong = Node("n9", Elementwise("add"), (x, y), F32, shape(4))
    (d,) = verify(Module({"main": replace(p, nodes=(*p.nodes, taken, wrong))}))
    assert d.patch is not None
    made = [op["value"]["id"] for op in d.patch.ops if op["op"] == "add"]
    assert made == ["n9_0_"]


def test_shapes_of_one_program_do_not_broadcast_once_normalised() -> None:
    assert faults(two((4,), (4,))) == []
    assert len(faults(two((2, 4), (4,)))) == 1 and faults(two((2, 4), (4,)), "tiny@imported") == []


def test_a_port_lies_at_a_multiple_of_a_power_of_two() -> None:
    b = Build()
    module = b.module(b.fn("neg", b.input("x", F32, 4)))
    main = module.main
    for alignment, count in ((64, 0), (48, 1)):
        ports = tuple(replace(p, alignment=alignment) for p in main.signature.inputs)
        found = faults(replace(main, signature=replace(main.signature, inputs=ports)))
        assert len(found) == count and all("alignment 48 is not a power of two" in f for f in found)
