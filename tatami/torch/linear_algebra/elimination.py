"""Eliminations over matrices as loops of a frontend graph: one column after the other, over all matrices at once, in fp64.

Each step works on whole matrices [batch…, rows, columns] with masks made from their indices, so one loop serves every order
and every batch. `k` is the step.
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal
from tatami.torch.repeated import repeated


class Matrices:
    """Access to parts of matrices, in one graph."""

    def __init__(self, graph: Graph) -> None:
        self.g = graph

    def rows(self, x: Tensor) -> Tensor:
        """The row number of every element."""
        return self.g.iota(x.shape, x.rank - 2)

    def columns(self, x: Tensor) -> Tensor:
        """The column number of every element."""
        return self.g.iota(x.shape, x.rank - 1)

    def row(self, x: Tensor, at: Tensor) -> Tensor:
        """Row `at` of each matrix as a matrix [batch…, 1, columns]; `at` has rank 0, or one element per matrix."""
        return self._sum(self.g.where(self.rows(x).one("eq", self.spread(at, x)), x, 0.0), x.rank - 2)

    def column(self, x: Tensor, at: Tensor) -> Tensor:
        """Column `at` of each matrix as a matrix [batch…, rows, 1]."""
        return self._sum(self.g.where(self.columns(x).one("eq", at), x, 0.0), x.rank - 1)

    def spread(self, value: Tensor, like: Tensor) -> Tensor:
        """Axes of size 1 repeated to the shape of `like`; one value per matrix is repeated to all its elements."""
        if not value.rank:
            return value
        wide = value if value.rank == like.rank else value.reshape(*value.shape, 1, 1)
        return wide.expand(like.shape)

    def _sum(self, x: Tensor, axis: int) -> Tensor:
        shape = (*x.shape[:axis], ONE, *x.shape[axis + 1 :])
        return x.one("reduce_sum", axes=(axis,)).reshape(*shape)

    def put(self, x: Tensor, where: Tensor, value: Tensor) -> Tensor:
        """`x` with `value`, repeated, where the mask is true."""
        return self.g.where(where, self.spread(value, x), x)


def factored(m: Importer, a: Tensor) -> tuple[Tensor, Tensor]:
    """(L below the diagonal and U above it in one matrix, the pivot row of each step counted from 0): the pivot is the
    largest element of its column at or below the diagonal."""
    count = steps_of(a)
    pivots = m.graph.full((*a.shape[:-2], count), 0, DType.i64)
    lu, pivots = repeated(m.graph, "factor", count, [a, pivots], [], _factor)
    return lu, pivots


def _factor(g: Graph, k: Tensor, state: list[Tensor], _: list[Tensor]) -> tuple[Tensor, Tensor]:
    at = Matrices(g)
    a, pivots = state
    rows, columns = at.rows(a), at.columns(a)
    size = at.column(a, k)
    below = at.g.iota(size.shape, size.rank - 2).one("ge", k)
    pivot = at.g.where(below, size.abs(), -1.0).reshape(*size.shape[:-1]).one("argmax", axis=size.rank - 2)
    top, chosen = at.row(a, k), at.row(a, pivot)
    a = at.put(at.put(a, rows.one("eq", at.spread(pivot, a)), top), rows.one("eq", k), chosen)
    head = at.column(chosen, k)
    head = at.g.where(head.one("eq", 0.0), 1.0, head)
    below_k, right = rows.one("gt", k), columns.one("gt", k)
    factor = at.spread(at.column(a, k), a) / at.spread(head, a)
    a = at.g.where(below_k.one("and", right), a - factor * at.spread(chosen, a), a)
    a = at.g.where(below_k.one("and", columns.one("eq", k)), factor, a)
    step = at.g.iota(pivots.shape, pivots.rank - 1).one("eq", k)
    return a, at.g.where(step, pivot.reshape(*pivot.shape, 1).expand(pivots.shape), pivots)


def order_of(m: Importer, pivots: Tensor, rows: Expr) -> Tensor:
    """The original row of each row of the factored matrix: the exchanges of `pivots` one after the other."""
    start = m.graph.iota((*pivots.shape[:-1], rows), pivots.rank - 1).reshape(*pivots.shape[:-1], rows, 1)
    (order,) = repeated(m.graph, "exchange", pivots.shape[-1], [start.cast(DType.fp64)], [_as_column(pivots)], _exchange)
    return order.cast(DType.i64)


def _exchange(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> tuple[Tensor]:
    at = Matrices(g)
    (order,) = state
    (pivots,) = given
    rows = at.rows(order)
    pivot = at.row(pivots, k).cast(DType.i64).reshape(*order.shape[:-2])
    top, chosen = at.row(order, k), at.row(order, pivot)
    other = rows.one("eq", at.spread(pivot, order))
    return (at.put(at.put(order, other, top), rows.one("eq", k), chosen),)


def _as_column(x: Tensor) -> Tensor:
    return x.cast(DType.fp64).reshape(*x.shape, 1)


def exchanged(m: Importer, order: Tensor, x: Tensor, back: bool = False) -> Tensor:
    """The rows of x in that order, or with `back` in the original order: a product with a matrix of zeros and ones."""
    size = order.shape[-2]
    square = (*order.shape[:-2], size, size)
    ones = order.expand(square).one("eq", m.graph.iota(square, len(square) - 1)).cast(x.dtype)
    return (transposed(ones) if back else ones).matmul(x)


def triangular(m: Importer, a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """X of A X = B for a triangle of A, with ones on the diagonal if `unit`. Batches are equal."""
    last = a.shape[-1] - 1

    def step(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> tuple[Tensor]:
        at = Matrices(g)
        (x,) = state
        (a,) = given
        i = at.g.size_of(last) - k if upper else k
        column = at.column(a, i)
        row = at.row(x, i)
        if not unit:
            row = row / at.spread(at.row(column, i), row)
        rows = at.rows(x)
        left = x - at.spread(column, x) * at.spread(row, x)
        x = at.g.where(rows.one("lt" if upper else "gt", i), left, x)
        return (at.put(x, rows.one("eq", i), row),)

    return repeated(m.graph, "substitute", a.shape[-1], [b], [a], step)[0]


def solved(m: Importer, lu: Tensor, pivots: Tensor, b: Tensor, adjoint: bool = False) -> Tensor:
    """X of A X = B (with `adjoint` of Aᵀ X = B) by the factors of A."""
    order = order_of(m, pivots, lu.shape[-1])
    if adjoint:
        flipped = transposed(lu)
        y = triangular(m, flipped, b, upper=False, unit=False)
        return exchanged(m, order, triangular(m, flipped, y, upper=True, unit=True), back=True)
    y = triangular(m, lu, exchanged(m, order, b), upper=False, unit=True)
    return triangular(m, lu, y, upper=True, unit=False)


def cholesky_factor(m: Importer, a: Tensor) -> Tensor:
    """L of A = L Lᵀ from the lower triangle of A; NaN from the first diagonal element on that is not positive."""
    (low,) = repeated(m.graph, "cholesky", a.shape[-1], [a], [], _cholesky)
    return low.tril()


def _cholesky(g: Graph, k: Tensor, state: list[Tensor], _: list[Tensor]) -> tuple[Tensor]:
    at = Matrices(g)
    (a,) = state
    rows, columns = at.rows(a), at.columns(a)
    column = at.column(a, k)
    column = column / at.spread(at.row(column, k).sqrt(), column)
    wide = at.spread(column, a)
    right = rows.one("gt", k).one("and", columns.one("gt", k))
    a = at.g.where(right, a - wide * at.spread(transposed(column), a), a)
    return (at.g.where(columns.one("eq", k).one("and", rows.one("ge", k)), wide, a),)


def transposed(x: Tensor) -> Tensor:
    """The matrices with rows and columns exchanged."""
    return x.transpose(x.rank - 2, x.rank - 1)


def steps_of(a: Tensor) -> Expr:
    """Number of steps of an elimination: the smaller of rows and columns. Raises Refusal for open sizes that differ."""
    rows, columns = a.shape[-2].as_int(), a.shape[-1].as_int()
    if rows is None or columns is None:
        if a.shape[-2] != a.shape[-1]:
            raise Refusal("a matrix whose rows and columns are open sizes, and differ")
        return a.shape[-1]
    return a.shape[-2] if rows < columns else a.shape[-1]
