"""Known values are removed from a kernel's statements, and nothing else is."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, maximum, minimum, var
from tatami.indexbook.ir import Guard
from tatami.loop.ir import (
    Assign,
    Cast,
    Const,
    Declare,
    For,
    If,
    IndexOf,
    Load,
    LocalBuffer,
    Op,
    Parallel,
    Reg,
    Stmt,
    Store,
    Within,
)
from tatami.loop.passes.settle import settled

x, y, i, j = (var(n) for n in "xyij")
F32 = DType.fp32


def integer(name: str, value: Expr) -> Declare:
    return Declare(Reg(name, DType.i64), IndexOf(value, DType.i64), integer=True)


def copied(at: Expr) -> Store:
    return Store("p1", at, Load("p0", at, F32))


def loop(name: str, stop: Expr | int, *body: Stmt, start: Expr | int = 0, step: int = 1) -> For:
    return For(name, expr(start), expr(stop), body, step)


def test_constants_and_other_names_are_put_where_they_are_used() -> None:
    given = loop("x", 8, integer("i", expr(3)), integer("j", x), copied(i * 4 + j))
    assert settled((given,)) == (loop("x", 8, copied(x + 12)),)


def test_a_register_that_is_a_value_too_is_a_number() -> None:
    as_float = Cast(Reg("i", DType.i64), F32)
    given = (integer("i", expr(3)), Store("p1", expr(0), as_float))
    assert settled(given) == (Store("p1", expr(0), Cast(IndexOf(expr(3), DType.i64), F32)),)


def test_what_is_assigned_to_stays_and_so_does_what_is_named_after_it() -> None:
    add = Assign(Reg("i", DType.i64), Op("add", (Reg("i", DType.i64), Const(1, DType.i64))))
    given = (integer("i", expr(0)), loop("x", 8, integer("j", i), add, copied(j)))
    assert settled(given) == given


def test_ranges_decide_floors_and_extremes() -> None:
    value = minimum(144 - x, 1) + floordiv(x, expr(144)) * 5 + maximum(x - 200, expr(-7) * floordiv(x, expr(16)))
    given = Parallel("x", expr(144), expr(1), (copied(value),))
    (made,) = settled((given,))
    assert isinstance(made, Parallel)
    assert made.body == (copied(expr(-7) * floordiv(x, expr(16)) + 1),)


def test_what_a_register_of_unknown_sign_decides_is_left() -> None:
    given = (integer("i", var("s0") - 5), copied(maximum(i, 0)), copied(floordiv(i, expr(8))), copied(minimum(i + x, x)))
    assert settled((loop("x", 4, *given),)) == (loop("x", 4, *given),)


def test_loops_that_run_once_are_their_bodies_and_those_that_never_do_are_nothing() -> None:
    given = (
        loop("x", 8, copied(x), step=8),
        loop("y", 5, copied(y), start=4),
        loop("x", 0, copied(x)),
        loop("y", 3, copied(y), start=7),
    )
    assert settled(given) == (copied(expr(0)), copied(expr(4)))


def test_a_loop_that_may_not_run_stays_one() -> None:
    given = (loop("x", minimum(var("s0"), 1), copied(x)), loop("y", i + 1, copied(y), start=i))
    assert settled(given) == given


def test_names_that_two_blocks_declare_do_not_meet() -> None:
    value = Declare(Reg("v", F32), Load("p0", x, F32))
    body = (value, Store("p1", x, Reg("v", F32)))
    first, second = settled((loop("x", 1, *body), loop("x", 2, *body, start=1)))
    assert isinstance(first, For) and isinstance(second, For)


def test_guards_that_hold_are_not_asked() -> None:
    both = Within((Guard(x - 1, expr(56)), Guard(x, expr(58))))
    given = loop("x", 58, If(both, (copied(x),), (copied(y),)))
    assert settled((given,)) == (loop("x", 58, If(Within((Guard(x - 1, expr(56)),)), (copied(x),), (copied(y),))),)
    always = loop("x", 58, If(Within((Guard(x, expr(58)),)), (copied(x),), (copied(y),)))
    assert settled((always,)) == (loop("x", 58, copied(x)),)


def test_guards_that_never_hold_leave_the_other_branch() -> None:
    for never in (Guard(expr(51), expr(50)), Guard(expr(-1), y), Guard(y + 3, y + 3)):
        cond = Within((Guard(x - 1, y), never))
        assert settled((loop("x", 58, If(cond, (copied(x),), (copied(y),))),)) == (loop("x", 58, copied(y)),)
    for open_ in (Guard(expr(49), expr(50)), Guard(y + 2, y + 3), Guard(y, expr(50))):
        given = loop("x", 58, If(Within((Guard(x - 1, y), open_)), (copied(x),), (copied(y),)))
        kept = settled((given,))[0]
        assert isinstance(kept, For) and isinstance(kept.body[0], If)


def test_scratch_that_nobody_uses_is_not_asked_for() -> None:
    used = Store("b1", x, Load("p0", x, F32))
    given = (LocalBuffer("b0", F32, expr(64)), LocalBuffer("b1", F32, expr(64)), loop("x", 8, used))
    assert settled(given) == given[1:]
