"""Joined arrays: made where they are wanted, copied where they cannot be, and left to a kernel where that would copy more."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.expr import ZERO, expr
from tatami.core.module import Module
from tatami.execution.ir import Copy, ExecutionPlan
from tatami.execution.verify import verify
from tatami.region.ir import Region
from tatami.region.views.concatenation import concatenated

replace = msgspec.structs.replace
Inputs = dict[str, np.ndarray]
RNG = np.random.default_rng(0)
W1, W2, W3 = (RNG.standard_normal((24, n)).astype(np.float32) for n in (32, 64, 16))
WIDE = RNG.standard_normal((32, 8)).astype(np.float32)


def after(g: tt.Graph, rows: tt.Tensor) -> None:
    """The concatenation is not an output of the program itself."""
    g.output("y", rows @ g.constant(WIDE))


def product_of(g: tt.Graph, x: tt.Tensor, name: str) -> tt.Tensor:
    return (x @ g.constant(W1)).relu()


def two(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    after(g, g.concat([product_of(g, x, "a"), product_of(g, z, "b")]))


def with_an_input(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    """A concatenation of 40 + 12 + 8 rows; the 8 rows of an input are copied."""
    short = g.input("short", (8, 32), tt.fp32)
    after(g, g.concat([product_of(g, x, "a"), short, product_of(g, z, "b")]))


def mostly_an_input(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    long = g.input("long", (200, 32), tt.fp32)
    after(g, g.concat([long, product_of(g, z, "b")]))


def nested(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    """Concatenations of a dense block: a|b, then a|b|c, which begins with the first."""
    a, b = product_of(g, x, "a"), product_of(g, z, "b")
    c = (g.concat([a, b]) @ g.constant(WIDE @ WIDE.T)).relu()
    after(g, g.concat([a, b, c]))


def at_odds(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    """a|b and b|a: one of them is joined, the other has to be copied whole, and stays a kernel."""
    a, b = product_of(g, x, "a"), product_of(g, z, "b")
    g.output("more", g.concat([b, a]) @ g.constant(WIDE))
    after(g, g.concat([a, b]))


def by_columns(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    """Rows of a and b lie in turns."""
    a = product_of(g, x, "a")
    b = (x @ g.constant(W3)).relu()
    g.output("y", g.concat([a, b], axis=1) @ g.constant(np.concatenate([WIDE, WIDE[:16]])))


def unaligned(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    """The second array, the smaller, would begin at byte 5 * 40 * 4, no multiple of 64: it is copied."""
    w = g.constant(np.ascontiguousarray(W1[:, :5]))
    g.output("y", g.concat([x @ w, z @ w]) @ g.constant(np.ascontiguousarray(WIDE[:5])))


def twice(g: tt.Graph, x: tt.Tensor, z: tt.Tensor) -> None:
    """One array at two places."""
    a = product_of(g, x, "a")
    after(g, g.concat([a, product_of(g, z, "b"), a]))


def reference(build: Callable[..., None], given: Inputs) -> dict[str, np.ndarray]:
    return tt.compile(graph(build), target="reference")(given)


def graph(build: Callable[..., None]) -> tt.Graph:
    g = tt.Graph("joined")
    build(g, g.input("x", (40, 24), tt.fp32), g.input("z", (12, 24), tt.fp32))
    return g


def inputs(f: tt.CompiledFunction) -> Inputs:
    ports = f.stages["frontend"].value.main.signature.inputs
    shapes = {p.tensor: tuple(n.as_int() or 0 for n in p.shape) for p in ports if p.storage == "argument"}
    return {name: RNG.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}


CASES = [(two, 2, 0), (with_an_input, 2, 1), (mostly_an_input, 0, 0), (nested, 4, 0), (at_odds, 2, 0), (by_columns, 0, 0)]
CASES += [(unaligned, 1, 1), (twice, 0, 0)]


@pytest.mark.parametrize("target", ["cpu", "emulated-sm80"])
@pytest.mark.parametrize(("build", "slices", "copies"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_operands_are_made_in_their_place(build: Callable[..., None], slices: int, copies: int, target: str) -> None:
    f = tt.compile(graph(build), target=target)
    plan = f.stages["execution"].value.main
    assert verify(f.stages["execution"].value) == []
    made = [i for i in plan.instructions if isinstance(i.op, Copy)]
    assert (sum(bool(b.parent) for b in plan.buffers), len(made)) == (slices + copies, copies)
    regions = [r for r in f.stages["region"].value.main.body if isinstance(r, Region)]
    needless = [r for r in regions if r.name not in {i.debug_name for i in plan.instructions}]
    assert len(needless) == {nested: 2}.get(build, int(slices > 0)) and all(concatenated(r) for r in needless)
    given = inputs(f)
    for name, wanted in reference(build, given).items():
        np.testing.assert_allclose(f(given)[name], wanted, rtol=1e-4, atol=1e-4)


def test_explain_says_what_lies_where() -> None:
    text = tt.compile(graph(two), target="cpu").explain()
    assert "joined in place in main" in text and "are made as parts of it" in text


def joined_plan() -> ExecutionPlan:
    plan: ExecutionPlan = tt.compile(graph(two), target="cpu").stages["execution"].value.main
    return plan


def test_what_nobody_writes_is_not_read() -> None:
    """A planted fault: the instruction of one slice is gone."""
    plan = joined_plan()
    (last,) = [b for b in plan.buffers if b.parent and b.offset != ZERO]
    fewer = replace(plan, instructions=tuple(i for i in plan.instructions if last.id not in i.outputs))
    assert any(f"but nothing writes {12 * 32} of its elements" in d.why for d in verify(Module({"main": fewer})))


def test_slices_are_apart() -> None:
    """A planted fault: a slice begins a row early."""
    plan = joined_plan()
    buffers = tuple(
        replace(b, offset=(b.offset or ZERO) - expr(32)) if b.offset not in (None, ZERO) else b for b in plan.buffers
    )
    assert any("may share elements" in d.why for d in verify(Module({"main": replace(plan, buffers=buffers)})))
