"""Sizes of a loop's state in the next turn, and the loops that memory cannot follow."""

from __future__ import annotations

import msgspec
import pytest

import tatami as tt
from tatami.core.expr import Expr, expr
from tatami.core.module import Module
from tatami.execution.frames import Layouts
from tatami.execution.ir import ExecutionPlan, Loop
from tatami.execution.views.growth import growths
from tests.onnx.subgraphs.test_control import model

GROWS = """g (int64 trip, float[N] x) => (float[M] y) {
    yes = Constant <value = bool {1}> ()
    y = Loop (trip, yes, x) <body = b (int64 i, bool go, float[L] s) => (bool again, float[K] t) {
        squares = Mul (s, s)
        zero = Constant <value = int64[1] {0}> ()
        sum = ReduceSum <keepdims = 1> (squares, zero)
        t = Concat <axis = 0> (s, sum, x)
        again = Identity (go)
    }>
}"""


@pytest.fixture(scope="module")
def module() -> Module[ExecutionPlan]:
    return tt.compile(model(GROWS), threads=1).execution


def loop_of(module: Module[ExecutionPlan]) -> Loop:
    return next(ins.op for ins in module.programs["main"].instructions if isinstance(ins.op, Loop))


def with_body(module: Module[ExecutionPlan], **fields: object) -> Module[ExecutionPlan]:
    """The module with other fields of the loop's body."""
    name = loop_of(module).body
    body = msgspec.structs.replace(module.programs[name], **fields)
    return Module({**module.programs, name: body}, module.constants, module.origins)


def found(module: Module[ExecutionPlan]) -> dict[str, Expr]:
    return growths(Layouts(module)).get(loop_of(module).body, {})


def test_a_size_follows_from_the_turn_before(module: Module[ExecutionPlan]) -> None:
    (size,) = loop_of(module).varying
    assert found(module) == {size: expr(size) + 1 + expr("N")}


def test_memory_that_may_shrink_where_a_size_rises_is_planned_each_turn(module: Module[ExecutionPlan]) -> None:
    (size,) = loop_of(module).varying
    body = module.programs[loop_of(module).body]
    for elements, is_followed in ((expr("N") * (expr(size) + 1), True), (expr(100) - expr(size), False)):
        first, *_ = [b for b in body.buffers if b.kind == "output" and b.shape]
        buffers = tuple(msgspec.structs.replace(b, elements=elements) if b.id == first.id else b for b in body.buffers)
        assert bool(found(with_body(module, buffers=buffers))) is is_followed


def test_a_captured_value_of_a_size_that_changes_is_bound_each_turn(module: Module[ExecutionPlan]) -> None:
    (size,) = loop_of(module).varying
    body = module.programs[loop_of(module).body]
    captured = body.input_buffers[-1]
    buffers = tuple(msgspec.structs.replace(b, shape=(expr(size),)) if b.id == captured else b for b in body.buffers)
    assert found(with_body(module, buffers=buffers)) == {}


def test_a_size_that_falls_as_another_rises_is_bound_each_turn(module: Module[ExecutionPlan]) -> None:
    (size,) = loop_of(module).varying
    body = module.programs[loop_of(module).body]
    result = body.output_buffers[1]
    shape = (expr(100) - expr(size),)
    buffers = tuple(msgspec.structs.replace(b, shape=shape) if b.id == result else b for b in body.buffers)
    assert found(with_body(module, buffers=buffers)) == {}
