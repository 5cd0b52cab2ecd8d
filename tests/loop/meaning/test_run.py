"""Kernels run statement by statement: the zoo against the meaning of Regions, and faults that have to be found."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr, var
from tatami.loop import ir
from tatami.loop.walk import nodes
from tatami.region.run import run_region
from tests.loop.agreement import assert_agree
from tests.loop.compiled import lowered
from tests.loop.meaning.arrays import run_region_by_loops
from tests.loop.meaning.run import TooLong, run
from tests.loop.meaning.values import Frame, NoMeaning, Outside
from tests.loop.zoo import SIZES, ZOO, bind, draw

MOST = {"avx512": 700, "generic": 140}
"""Maximum elements of the Regions that are run, by width: a vector is one value, and numpy takes as long for a number."""
F32 = DType.fp32


@pytest.mark.parametrize("width", MOST)
@pytest.mark.parametrize("name", list(ZOO))
def test_loops_mean_what_the_region_means(name: str, width: str) -> None:
    region = ZOO[name]()
    kernel, binding = lowered(region, None, width)
    ran = 0
    for values in SIZES[name]:
        sizes = bind(region, values)
        inputs = draw(region, sizes)
        if sum(a.size for a in inputs.values()) > MOST[width]:
            continue
        with np.errstate(all="ignore"):
            want = run_region(region, inputs, sizes)
            try:
                fault, got = run_region_by_loops(kernel, binding, region, inputs, sizes)
            except NoMeaning:
                pytest.skip("its kernel calls a routine")
        assert fault == 0, (name, values)
        assert_agree(region, got, want, sizes, f"{name} {values}")
        ran += 1
    assert ran


def lanes(*numbers: float) -> ir.Value:
    """A register of numbers, by the name `r` and these."""
    return ir.Reg("r" + "_".join(map(str, numbers)), F32, len(numbers))


def value_of(v: ir.Value, **names: int) -> list[float]:
    registers = {r.name: np.array([float(n) for n in r.name[1:].split("_")]) for r in nodes(v) if isinstance(r, ir.Reg)}
    found: list[float] = Frame("float64", names, {}, registers).value(v).tolist()
    return found


A, B = lanes(1, 2, 3, 4), lanes(5, 6, 7, 8)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (ir.Shift(A, 1, B), [5, 1, 2, 3]),
        (ir.Shift(A, -1, B), [2, 3, 4, 8]),
        (ir.Across(A, B, 3), [4, 5, 6, 7]),
        (ir.Zip(A, B, False), [1, 5, 2, 6]),
        (ir.Zip(A, B, True), [3, 7, 4, 8]),
        (ir.Unzip(A, B, False), [1, 3, 5, 7]),
        (ir.Unzip(A, B, True), [2, 4, 6, 8]),
        (ir.Horizontal("max", B), [8]),
        (ir.Lane(A, expr(2)), [3]),
        (ir.Fma(A, A, B), [6, 10, 16, 24]),
        (ir.IndexOf(var("x0"), F32, 4, expr(3)), [9, 12, 15, 18]),
        (ir.LaneRange(expr(1), expr(3), 4), [False, True, True, False]),
        (ir.FirstLane((ir.Op("lt", (A, A)), ir.Op("le", (A, A)))), [4]),
        (ir.FirstLane((ir.Op("lt", (A, A)),)), [4]),
    ],
    ids=str,
)
def test_lanes_go_where_the_value_says(value: ir.Value, wanted: list[float]) -> None:
    assert value_of(value, x0=9) == wanted


def kernel(*body: ir.Stmt) -> ir.Kernel:
    face = lowered(ZOO["rank0"](), None, "generic")[0].face
    return ir.Kernel(face, (ir.BufferParam("p0", F32), ir.BufferParam("p1", F32, True)), body)


def ran(*body: ir.Stmt) -> list[float]:
    out = np.full(4, np.nan, np.float32)
    run(kernel(*body), [np.arange(4, dtype=np.float32), out], [])
    return [float(x) for x in out]


COPY = ir.Store("p1", var("x0"), ir.Load("p0", var("x0"), F32))


def test_faults_of_kernels_are_found() -> None:
    assert ran(ir.For("x0", expr(0), expr(4), (COPY,))) == [0, 1, 2, 3]
    for wrong in (ir.For("x0", expr(0), expr(5), (COPY,)), ir.For("x0", expr(-1), expr(4), (COPY,))):
        with pytest.raises(Outside):
            ran(wrong)
    with pytest.raises(TooLong):
        ran(ir.For("x0", expr(0), expr(1 << 40), ()), ir.For("x0", expr(0), expr(1 << 40), (ir.Fault(),)))
    unwritten = ir.Store("p1", expr(0), ir.Load("b0", expr(0), F32))
    assert np.isnan(ran(ir.LocalBuffer("b0", F32, expr(1)), unwritten)[0])


def test_threads_do_not_see_each_others_scratch() -> None:
    scratch = (ir.LocalBuffer("b0", F32, expr(1)), ir.Store("b0", expr(0), ir.Const(0.0, F32)))
    total = ir.Op("add", (ir.Load("b0", expr(0), F32), ir.Load("p0", var("x0"), F32)))
    body = (ir.Store("b0", expr(0), total), ir.Store("p1", var("x0"), ir.Load("b0", expr(0), F32)))
    assert ran(ir.Parallel("x0", expr(4), expr(1), body, scratch)) == [0, 1, 2, 5]


def changed(stmts: tuple[Any, ...], kind: type, change: Any) -> tuple[Any, ...]:
    """The statements, each of one kind changed."""
    out = []
    for s in stmts:
        fields = {
            n: changed(v, kind, change) for n in s.__struct_fields__ if isinstance(v := getattr(s, n), tuple) and n != "args"
        }
        made = msgspec.structs.replace(s, **{n: v for n, v in fields.items() if n in ("body", "then", "otherwise", "prologue")})
        out.append(change(made) if isinstance(made, kind) else made)
    return tuple(out)


@pytest.mark.parametrize("fault", ["a loop that ends early", "an addend that is lost", "a store beside its place"])
def test_a_kernel_with_a_fault_computes_something_else(fault: str) -> None:
    region = ZOO["softmax"]()
    made, binding = lowered(region, None, "generic")
    change = {
        "a loop that ends early": (ir.For, lambda s: msgspec.structs.replace(s, stop=s.stop - 1)),
        "an addend that is lost": (ir.Assign, lambda s: msgspec.structs.replace(s, value=s.reg)),
        "a store beside its place": (ir.Store, lambda s: msgspec.structs.replace(s, index=s.index + 1)),
    }[fault]
    wrong = msgspec.structs.replace(made, body=changed(made.body, *change))
    sizes = bind(region, (3, 5))
    inputs = draw(region, sizes)
    want = run_region(region, inputs, sizes)
    assert_agree(region, run_region_by_loops(made, binding, region, inputs, sizes)[1], want, sizes, "")
    with pytest.raises((AssertionError, Outside)):
        assert_agree(region, run_region_by_loops(wrong, binding, region, inputs, sizes)[1], want, sizes, "")
