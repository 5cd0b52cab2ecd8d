"""Long chains go several at a time where nothing that a loop does depends on its order."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.algebra.visit import evaluate, substitute
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, var
from tatami.loop.ir import Assign, Declare, For, IndexOf, Load, Op, Reg, Stmt, Store, Value
from tatami.loop.passes.interleave import CHAINS, has_chains_side_by_side, interleaved

x, y, n = (var(name) for name in "xyn")
F32 = DType.fp32


def lanes(name: str) -> Reg:
    return Reg(name, F32, 8)


def load(at: Expr, buffer: str = "p0") -> Load:
    return Load(buffer, at, F32, 8)


def body(at: Expr, function: str = "erf") -> tuple[Stmt, ...]:
    return (Declare(lanes("v1"), load(at)), Declare(lanes("v2"), Op(function, (lanes("v1"),))), Store("p1", at, lanes("v2")))


def loop(stop: Expr | int, *inside: Stmt, start: Expr | int = 0, step: int = 8, name: str = "x") -> For:
    return For(name, expr(start), expr(stop), inside, step, simd=step > 1)


def written(stmts: tuple[Stmt, ...], values: dict[str, int]) -> list[int]:
    """The places that stores write, in order."""
    found: list[int] = []
    for s in stmts:
        match s:
            case For():
                first, stop = evaluate(s.start, values), evaluate(s.stop, values)
                for at in range(first, stop, s.step):
                    found += written(s.body, {**values, s.var: at})
            case Store():
                found.append(evaluate(s.index, values))
    return found


@pytest.mark.parametrize("steps", [*range(2 * CHAINS + 2), 125])
def test_every_step_is_done_once_and_in_order(steps: int) -> None:
    made = interleaved((loop(8 * steps, *body(x)),))
    assert written(made, {}) == [8 * k for k in range(steps)]
    assert has_chains_side_by_side(made) == (steps > 1)


@pytest.mark.parametrize("last", [0, 3, 8, 31, 32, 33, 100])
def test_of_loops_whose_ends_are_not_known(last: int) -> None:
    first = var("first")
    given = loop(n, *body(x), start=first)
    made = interleaved((given,))
    assert made != (given,)
    for start in (0, 5, 40):
        assert written(made, {"n": last, "first": start}) == list(range(start, last, 8))


def test_loads_and_chains_come_before_stores() -> None:
    (made,) = interleaved((loop(64, *body(x)),))
    assert isinstance(made, For) and made.step == 8 * CHAINS
    kinds = [type(s) for s in made.body]
    assert kinds == [Declare] * (2 * CHAINS) + [Store] * CHAINS
    names = [s.reg.name for s in made.body if isinstance(s, Declare)]
    assert len(set(names)) == len(names)


def test_a_short_loop_goes_whole_and_the_loop_around_it_in_steps() -> None:
    rows = loop(n, loop(16, *[substitute_place(s) for s in body(x)]), step=1, name="y")
    made = interleaved((rows,))
    assert [type(s) for s in made] == [For, For] and isinstance(made[0], For) and made[0].step == CHAINS // 2
    assert written(made, {"n": 5}) == [100 * row + at for row in range(5) for at in (0, 8)]


def substitute_place(s: Stmt) -> Stmt:
    match s:
        case Store(buffer=buffer, index=index, value=value):
            return Store(buffer, substitute(index, {"x": x + 100 * y}), value)
        case _:
            return s


@pytest.mark.parametrize("why", ["sum", "reads what it writes", "function that asks", "one lane", "integers", "many"])
def test_what_stays(why: str) -> None:
    total: Value = Op("add", (lanes("a"), lanes("v2")))
    one = Reg("s1", F32)
    given: dict[str, tuple[Stmt, ...]] = {
        "sum": (*body(x)[:2], Assign(lanes("a"), total)),
        "function that asks": body(x, "exp"),
        "one lane": (Declare(one, Op("erf", (Load("p0", x, F32),))), Store("p1", x, one)),
        "integers": (Declare(Reg("i1", DType.i64), IndexOf(x, DType.i64), integer=True), Store("p1", x, load(x))),
        "many": tuple(Declare(lanes(f"v{k}"), Op("erf", (load(x),))) for k in range(CHAINS)),
    }
    if why == "reads what it writes":
        (made,) = interleaved((loop(64, Declare(lanes("v1"), Op("erf", (load(x, "p1"),))), Store("p1", x + 8, lanes("v1"))),))
        assert [type(s) for s in made.body] == [Declare, Store] * CHAINS  # type: ignore[union-attr]
        return
    stmts = (loop(64, *given[why]),)
    assert interleaved(stmts) == stmts


@pytest.mark.parametrize("size", [(3, 7), (5, 8), (4, 100), (2, 33, 17)])
@pytest.mark.parametrize("function", ["erf", "tanh"])
def test_results_have_the_bits_of_one_vector_at_a_time(size: tuple[int, ...], function: str) -> None:
    g = tt.Graph("g")
    given = g.input("x", size, tt.fp32)
    g.output("y", getattr(given, function)() * given + 1.0)
    values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    f = tt.compile(g)
    first = [f(np.full(size, v, np.float32))["y"].ravel()[0] for v in values.ravel()]
    np.testing.assert_array_equal(f(values)["y"].ravel(), first)


def test_the_unit_says_so_to_the_c_compiler() -> None:
    g = tt.Graph("g")
    g.output("y", g.input("x", (64, 64), tt.fp32).erf())
    f = tt.compile(g, target="cpu:avx2")
    assert "schedule-insns" in f.stages["c"].text
