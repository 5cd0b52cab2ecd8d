"""Each rule of the frontend's verifier: a module that breaks it has that one fault, and modules at its edge have none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, Output, Signature
from tatami.core.tensor import Tensor
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operations.size_conditions import graph_conditions
from tatami.frontend.verify import verify

replace = msgspec.structs.replace
F32, F16 = DType.fp32, DType.fp16
four, state = shape(4), Input("s", F32, shape(4), mutability="mutable")
X, Y = Input("x", F32, four), Output("y", F32, four)


def node(op: str = "relu", reads: str = "x", writes: str = "y", name: str = "step", **attrs: Any) -> Node:
    return Node(op, name, tuple(reads.split()), tuple(writes.split()), attrs)


def graph(*nodes: Node, inputs: tuple[Input, ...] = (X,), outputs: tuple[Output, ...] = (Y,), equations: tuple[Equation, ...] = (), **tensors: TensorType | None) -> Graph:  # fmt: skip
    """y = relu(x) unless `nodes` say otherwise; `tensors` adds types, or leaves one out."""
    ports: list[Input | Output] = [*inputs, *outputs]
    types = {p.tensor: TensorType(p.dtype, p.shape) for p in ports} | tensors
    return Graph(Signature(inputs, outputs, equations), {k: t for k, t in types.items() if t is not None}, nodes or (node(),))


def faults(main: Graph, constants: dict[str, Tensor] | None = None, others: Mapping[str, Graph] | None = None) -> list[str]:
    return [f"{d.at}: {d.why}" for d in verify(Module({"main": main, **(others or {})}, constants or {}))]


def chain(length: int) -> dict[str, Graph]:
    """f1 calls f2, and so on: `length` graphs."""
    calls = {f"f{k}": graph(node("call", graph=f"f{k + 1}")) for k in range(1, length)}
    return {**calls, f"f{length}": graph()}


updates = (Output("y", F32, four, updates="s"),)
two_updates = (*updates, Output("z", F32, four, updates="s"))
long = TensorType(F32, shape(5))
weights = Input("w", F32, four, storage="const_pool")
ACCEPTED: Final = MappingProxyType(
    {
        "a copy": graph(),
        "a size": graph(inputs=(Input("x", F32, shape("N")),), outputs=(Output("y", F32, shape("N")),)),
        "an update": graph(inputs=(X, state), outputs=updates),
        "nothing": graph(inputs=(Input("x", F32, shape(0)),), outputs=(Output("y", F32, shape(0)),)),
        "a constant that is passed": graph(inputs=(X, weights)),
        "ten graphs": graph(node("call", graph="f2")),
    }
)


@pytest.mark.parametrize("what", list(ACCEPTED))
def test_what_breaks_no_rule_is_accepted(what: str) -> None:
    others = {k: g for k, g in chain(10).items() if k != "f1"}
    assert faults(ACCEPTED[what], others=others) == []


WRONG: Final = MappingProxyType(
    {
        "an input at a multiple of no power of two": (graph(inputs=(replace(X, alignment=3),)), "x: alignment 3 is not a power of two"),
        "two inputs of one name": (graph(inputs=(X, X)), "x: two inputs of main have this name"),
        "an input of no type": (graph(inputs=(X, Input("z", DType.unknown, four))), "z: its dtype was never decided"),
        "an input of a negative size": (graph(inputs=(X, Input("z", F32, shape(-1)))), "z: a size is -1"),
        "an input of an axis": (graph(inputs=(X, Input("z", F32, shape("i0")))), "z: 'i0' cannot name a size"),
        "an input of another type": (graph(inputs=(X, Input("z", F32, four)), z=long), "z: the signature and `tensors` disagree"),
        "an input without a type": (graph(inputs=(X, Input("z", F32, four)), z=None), "z: the signature and `tensors` disagree"),
        "an output without a type": (graph(outputs=(Y, Output("z", F32, four)), z=None), "z: an output of main is never defined"),
        "an output of another type": (graph(outputs=(Y, Output("z", F32, four)), z=long), "z: the output and `tensors` disagree"),
        "an update of nothing": (graph(outputs=updates), "y: updates 's', not a mutable input"),
        "an update of what stays": (graph(inputs=(X, replace(state, mutability="immutable")), outputs=updates), "y: updates 's', not a mutable"),
        "an update of another type": (graph(inputs=(X, replace(state, dtype=F16)), outputs=updates), "y: its type differs from 's'"),
        "an update of another shape": (graph(inputs=(X, replace(state, shape=shape(5))), outputs=updates), "y: its type differs from 's'"),
        "two updates of one input": (graph(inputs=(X, state), outputs=two_updates), "z: 's' is updated twice"),
        "a result of a negative size": (
            graph(node("pad", writes="z", pads=[[0, -5]]), node(name="t"), z=TensorType(F32, shape(-1))), "z: a size is -1"),
        "fewer results than there are": (graph(node(), node("topk", writes="z", name="t", k=2), z=TensorType(F32, shape(2))), "t: topk has 2 results, 1 are named"),
        "two nodes of one name": (graph(node(), node(writes="z"), z=TensorType(F32, four)), "step: two nodes of main have this name"),
        "a result that is an input": (graph(node(), node(writes="x", name="t")), "x: it is defined twice"),
        "two results of one name": (graph(node(), node(name="t")), "y: it is defined twice"),
        "an operand that comes later": (graph(node(reads="z"), node(writes="z", name="t"), z=TensorType(F32, four)), "step: reads 'z', which is defined after"),
        "an operand that is not there": (graph(node(reads="q")), "step: "),
        "more results than there are": (graph(node(writes="y z"), z=TensorType(F32, four)), "step: relu has 1 results, 2 are named"),
        "a result without a type": (graph(node(writes="z"), node(name="t"), z=None), "step: 'z' is not in `tensors`"),
        "a result of another type": (graph(node(writes="z"), node(name="t"), z=long), "step: z is declared fp32[5], relu gives fp32[4]"),
        "an operation that is not there": (graph(node("system")), "step: "),
        "eleven graphs": (graph(node("call", graph="f1")), "main: graphs call each other more than 10 deep: main -> f1 -> f2"),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(WRONG))
def test_a_broken_rule_is_the_one_fault(what: str) -> None:
    main, why = WRONG[what]
    found = faults(main, others=chain(10) if what == "eleven graphs" else None)
    assert len(found) == 1 and why in found[0], found


def test_a_constant_has_the_type_of_its_input() -> None:
    main = graph(inputs=(X, weights))
    assert faults(main, {"w": Tensor(np.zeros(4, np.float32))}) == []
    for wrong in (np.zeros(5, np.float32), np.zeros(4, np.float64)):
        assert len(faults(main, {"w": Tensor(wrong)})) == 1
    passed = graph(inputs=(X, replace(weights, storage="argument")))
    assert faults(passed, {"w": Tensor(np.zeros(5, np.float32))}) == []


def test_conditions_of_sizes_stand_in_the_signature() -> None:
    """A crop of 2 of N numbers asks for as many."""
    crop = node("pad", pads=[[0, -2]])
    ports = {"inputs": (Input("x", F32, shape("N")),), "outputs": (Output("y", F32, shape("N - 2")),)}
    (fault,) = faults(graph(crop, **ports))  # type: ignore[arg-type]
    assert fault.endswith("is needed and not among the signature's assumptions")
    needed = graph_conditions(graph(crop, **ports))  # type: ignore[arg-type]
    assert faults(graph(crop, **ports, equations=needed)) == []  # type: ignore[arg-type]
    with_fault = graph(crop, node(reads="q", writes="z", name="t"), z=TensorType(F32, four), **ports)  # type: ignore[arg-type]
    assert [f[:3] for f in faults(with_fault)] == ["t: "]


def test_conditions_of_numbers_hold() -> None:
    line = (Input("x", F32, shape(1, 1, 4)),)
    pooled = graph(node("max_pool", kernel=[5]), inputs=line, outputs=(Output("y", F32, shape(1, 1, 0)),))
    (fault,) = faults(pooled)
    assert fault.startswith("step: ")
    both = (Output("y", F32, shape(5)), Output("z", DType.i64, shape(5)))
    assert faults(graph(node("topk", writes="y z", k=5), outputs=both)) == ["step: the 5 largest of 4"]


def test_the_deepest_chain_of_calls_is_named() -> None:
    """A chain of calls next to calls that end soon."""
    both = node("call", graph="f1")
    aside = node("call", writes="z", name="aside", graph="f10")
    main = graph(aside, both, z=TensorType(F32, four))
    (fault,) = faults(main, others=chain(10))
    assert fault.endswith(" -> ".join(["main", *(f"f{k}" for k in range(1, 11))]))
    missing = graph(node("call", graph="q"))
    assert len(faults(missing)) == 1


def test_every_graph_is_checked() -> None:
    assert faults(graph(), others={"f": graph(node(reads="q"))}) == faults(graph(node(reads="q")))
    assert [f"{d.at}: {d.why}" for d in verify(Module({"f": graph()}))] == ["programs: there is no graph main"]


def test_a_circle_of_calls_is_named_once() -> None:
    (fault,) = faults(graph(node("call", graph="main")))
    assert fault == "main: graphs call each other more than 10 deep: main -> main -> …"
    (fault,) = faults(graph(node("call", graph="f")), others={"f": graph(node("call", graph="main"))})
    assert fault == "main: graphs call each other more than 10 deep: main -> f -> main -> …"
