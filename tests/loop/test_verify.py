"""The verifier of loop programs: silent on what the lowering makes, and each planted fault is named."""

from __future__ import annotations

import msgspec
import pytest

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.dtype import DType
from tatami.core.expr import expr, var
from tatami.core.kernel import Binding
from tatami.core.module import Module
from tatami.loop.ir import (
    Assign,
    Const,
    Declare,
    FirstLane,
    For,
    If,
    Kernel,
    LaneRange,
    Load,
    LocalBuffer,
    Op,
    Parallel,
    Program,
    Reg,
    Stmt,
    Store,
)
from tatami.loop.show import show
from tatami.loop.verify import verify, verify_kernel
from tests.loop.compiled import TARGETS, kernel_of
from tests.loop.zoo import ZOO

SMALL = ("softmax", "pad", "gather_wrap", "scan_sum_i1_11", "scatter_add", "permute_4d", "attention")
r = Reg("v1", DType.fp32)
one = Const(1, DType.fp32)
place = Reg("v2", DType.i64)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("width", list(TARGETS))
def test_kernels_of_the_zoo_are_valid(name: str, width: str) -> None:
    assert verify_kernel(kernel_of(ZOO[name](), None, width)) == []


def broken(*body: Stmt) -> list[str]:
    kernel = kernel_of(ZOO["bias_relu"]())
    return [d.why for d in verify_kernel(msgspec.structs.replace(kernel, body=body))]


PLANTED: dict[str, tuple[Stmt, ...]] = {
    "used where it is not declared": (Assign(r, one),),
    "declared twice": (Declare(r, one), Declare(r, one)),
    "its value fp64": (Declare(r, Const(1, DType.fp64)),),
    "input p0 is written": (Store("p0", expr(0), one),),
    "buffer b9 does not exist": (Store("b9", expr(0), one),),
    "is not in scope": (Store("p2", var("x1"), one),),
    "is read as fp64": (Declare(Reg("v1", DType.fp64), Load("p0", expr(0), DType.fp64)),),
    "is nested": (Parallel("z", expr(1), expr(1), (Parallel("y", expr(1), expr(1), ()),)),),
    "or with another type": (Declare(r, one), Parallel("z", expr(1), expr(1), (Assign(r, one),))),
    "steps by 0": (For("x", expr(0), expr(1), (), 0),),
    "add over": (Declare(r, Op("add", (one, Const(1, DType.fp64)))),),
    "a condition is": (If(one, ()),),
    "the first lane of [('fp32', 1)]": (Declare(place, FirstLane((one,))),),
    "the first lane of [('bool', 16)": (Declare(place, FirstLane((LaneRange(expr(0), expr(1), 16),) * 5)),),
    "buffer b1 is declared twice": (LocalBuffer("b1", DType.fp32, expr(1)), LocalBuffer("b1", DType.fp32, expr(1))),
}


@pytest.mark.parametrize("why", list(PLANTED))
def test_a_planted_fault_is_named(why: str) -> None:
    assert any(why in text for text in broken(*PLANTED[why])), broken(*PLANTED[why])


def _module(kernel: Kernel, binding: Binding) -> Module[Program]:
    return Module({"main": Program({kernel.face.symbol: kernel}, (binding,))})


def test_bindings_pass_what_the_kernel_takes() -> None:
    kernel = kernel_of(ZOO["bias_relu"]())
    symbol = kernel.face.symbol
    sizes = (var("N"), var("C"))
    assert verify(_module(kernel, Binding("r", symbol, ("x", "w", "y"), sizes))) == []
    assert "passes 1 buffers" in verify(_module(kernel, Binding("r", symbol, ("x",), sizes)))[0].why
    assert "does not exist" in verify(_module(kernel, Binding("r", "k", ("x",), sizes)))[0].why


@pytest.mark.parametrize("name", SMALL)
def test_a_program_survives_its_document(name: str) -> None:
    kernel = kernel_of(ZOO[name]())
    program = Program({kernel.face.symbol: kernel}, ())
    text = msgspec.json.encode(to_builtins(program))
    assert from_builtins(msgspec.json.decode(text), Program, "loop") == program


def test_show_is_one_line_per_statement() -> None:
    kernel = kernel_of(ZOO["sum_1"](), None, "avx2")
    text = show(_module(kernel, Binding("r", kernel.face.symbol, ("x", "y"), (var("N"), var("C")))))
    assert "parallel z_" in text and "across_sum" in text and "simd" in text
