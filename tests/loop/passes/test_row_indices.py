"""Indices that memory holds are read before the loops that they are the same in, and nowhere else."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, var
from tatami.loop.ir import Assign, Cast, Const, Declare, For, Load, Op, Parallel, Reg, Stmt, Store
from tatami.loop.passes.row_indices import indices_before_loops

V, I, R = Reg("v", DType.i64), Reg("i", DType.i64), Reg("r", DType.fp32)
X, Z = var("x"), var("z")


def place(at: Expr) -> tuple[Declare, ...]:
    """An index register of what `p0` holds."""
    return Declare(V, Load("p0", at, DType.i64)), Declare(I, Op("neg", (V,)), integer=True)


def copied(stop: Expr, *head: Stmt, to: str = "p2") -> For:
    return For("x", expr(0), stop, (*head, Store(to, X, Load("p1", var("i") * 8 + X, DType.fp32))))


def test_the_place_of_a_row_is_read_before_the_loop_over_it() -> None:
    rows = Parallel("z", expr(4), expr(1), (copied(expr(8), *place(Z)),))
    (got,) = indices_before_loops((rows,))
    assert isinstance(got, Parallel)
    assert got.body == (*place(Z), copied(expr(8)))


def test_it_leaves_every_loop_that_does_not_change_it() -> None:
    inner = For("y", expr(0), expr(2), (copied(expr(8), *place(Z)),))
    assert indices_before_loops((inner,)) == (*place(Z), For("y", expr(0), expr(2), (copied(expr(8)),)))


def test_what_the_loop_changes_or_may_not_reach_stays() -> None:
    moving = copied(expr(8), *place(X))
    empty = copied(var("s0"), *place(Z))
    overwritten = copied(expr(8), *place(Z), to="p0")
    assigned = For("x", expr(0), expr(8), (*place(Z), Assign(V, Load("p0", X, DType.i64))))
    no_index = For("x", expr(0), expr(8), (Declare(R, Cast(Const(1, DType.i64), DType.fp32)), Store("p2", X, R)))
    for loop in (moving, empty, overwritten, assigned, no_index):
        assert indices_before_loops((loop,)) == (loop,)
