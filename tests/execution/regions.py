"""Small Region programs for the tests of this layer."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr, shape
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.region.ir import Binary, Iter, Let, Param, Program, Read, Region, Step, Target, Unary, Yield

F32 = DType.fp32
N = shape("N")


def region(name: str, fn: str, inputs: tuple[str, ...], output: str, dims: Shape, updates: str = "") -> Region:
    """output = fn(inputs) elementwise over `dims`."""
    axes = tuple(f"i{k}" for k in range(len(dims)))
    reads = [Read(i, tuple(expr(a) for a in axes)) for i in inputs]
    body = Unary(fn, reads[0]) if len(reads) == 1 else Binary(fn, reads[0], reads[1])
    ref = MemRef(F32, dims)
    return Region(
        name,
        tuple(Iter(a, d) for a, d in zip(axes, dims)),
        (),
        tuple(Param(i, ref) for i in dict.fromkeys(inputs)),
        (Target(output, ref, updates=updates),),
        (Let("t", axes, F32, body),),
        (Yield("t", output),),
    )


def program(
    body: tuple[Region | Step, ...],
    inputs: dict[str, Shape],
    outputs: dict[str, tuple[str, Shape]],
    *,
    updates: dict[str, str] | None = None,
    pool: tuple[str, ...] = (),
) -> Program:
    """inputs: id -> shape (tensor names are the id with a dash); outputs: tensor -> (id, shape)."""
    updates = updates or {}
    signature = Signature(
        tuple(
            Input(
                f"in-{i}",
                F32,
                s,
                mutability="mutable" if f"in-{i}" in updates.values() else "immutable",
                storage="const_pool" if i in pool else "argument",
            )
            for i, s in inputs.items()
        ),
        tuple(Output(t, F32, s, updates=updates.get(t)) for t, (_, s) in outputs.items()),
    )
    return Program(signature, tuple(inputs), tuple(id for id, _ in outputs.values()), body)


def chain(length: int, dims: Shape = N) -> Module[Program]:
    """n0 -> n1 -> … -> n<length>."""
    body = tuple(region(f"r{k}", "neg", (f"n{k}",), f"n{k + 1}", dims) for k in range(length))
    return Module({"main": program(body, {"n0": dims}, {"y": (f"n{length}", dims)})})
