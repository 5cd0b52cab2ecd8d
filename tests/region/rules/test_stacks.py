"""Reduces over the parts of a stack: the form of the Region, and its values next to numpy's."""

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.expr import expr, var
from tatami.core.layout import MemRef
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    Binary,
    Const,
    Index,
    Iter,
    Let,
    Param,
    Read,
    Reduce,
    Region,
    RegionExpr,
    Select,
    Target,
    Within,
    Yield,
)
from tatami.region.rules.stacks import PARTS, spell_out_stacks

F = DType.fp32


def part(name: str) -> Read:
    return Read(name, (var("m"),))


def stacked(*parts: RegionExpr) -> RegionExpr:
    """part i where index(i) = i, as a concatenation leaves it, with the guard of each part."""
    out = guarded(parts[0], 0)
    for n, e in enumerate(parts[1:], start=1):
        out = Select(Binary("lt", Index(var("i"), DType.i64), Const(n, DType.i64)), out, guarded(e, n))
    return out


def guarded(e: RegionExpr, at: int) -> RegionExpr:
    return Select(Within((Guard(var("i") - at, expr(1)),)), e, Const(0.0, F))


def region(body: RegionExpr, fn: str, count: int, names: str) -> Region:
    let = Let("y", ("m",), F, Reduce(fn, ("i",), None, F, body))
    shape = (expr(5), expr(count))
    inputs = tuple(Param(n, MemRef(F, shape[: 2 if n == "x" else 1])) for n in names)
    out = Target("out", MemRef(F, shape[:1]))
    iters, reduced = (Iter("m", shape[0]),), (Iter("i", shape[1]),)
    return Region("r", iters, reduced, inputs, (out,), (let,), (Yield("y", "out"),))


@pytest.mark.parametrize(("fn", "op"), [("sum", "add"), ("max", "max"), ("min", "min"), ("prod", "mul")])
def test_a_reduce_over_a_stack_is_a_chain_of_its_parts(fn: str, op: str) -> None:
    made = spell_out_stacks(region(stacked(part("a"), part("b"), part("c")), fn, 3, "abc"))
    assert made.lets[0].expr == Binary(op, Binary(op, part("a"), part("b")), part("c"))


def test_a_reduce_over_an_axis_of_data_stays() -> None:
    """The axis is one of a tensor, alone or of one part."""
    x = Read("x", (var("m"), var("i")))
    for body, names in ((x, "x"), (stacked(part("a"), x), "ax")):
        given = region(body, "max", 2, names)
        assert spell_out_stacks(given) == given


def test_a_reduce_over_many_parts_stays() -> None:
    names = "abcdefg"
    given = region(stacked(*map(part, names)), "sum", PARTS + 1, names)
    assert spell_out_stacks(given) == given


@pytest.mark.parametrize("fn", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("count", [2, 3, PARTS, 7])
def test_reduced_stacks_have_the_values_of_numpy(fn: str, count: int) -> None:
    g = tt.Graph("stacked")
    names = [f"x{n}" for n in range(count)]
    parts = [g.input(n, (19, 37), tt.fp32).permute((1, 0)) for n in names]
    g.output("y", getattr(g.stack(parts), fn)(axis=0))
    generator = np.random.default_rng(count)
    arrays = {n: generator.standard_normal((19, 37)).astype(np.float32) for n in names}
    if fn in ("max", "min"):
        arrays["x1"][3, 5] = np.nan
    want = getattr(np, fn)(np.stack([a.T for a in arrays.values()]).astype(np.float64), axis=0)
    f = tt.compile(g)
    kinds = [r.kind for r in f.stages["poly_core"].value.main.regions]
    assert kinds == (["map"] if count <= PARTS else ["rows"])
    np.testing.assert_allclose(f(arrays)["y"], want, rtol=1e-5, atol=1e-6)
