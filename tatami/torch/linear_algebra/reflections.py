"""Householder reflections as loops of a frontend graph, in LAPACK's form: H = I - tau v vᵀ with v = (0, …, 0, 1, x, …).

The vectors of the reflections stand below the diagonal of a matrix, column by column; each step works on whole matrices.
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.importer import Importer
from tatami.torch.linear_algebra.elimination import Matrices, steps_of, transposed
from tatami.torch.repeated import repeated


def reflected(m: Importer, a: Tensor) -> tuple[Tensor, Tensor]:
    """(R on and above the diagonal with the vectors below it, tau of each step), as geqrf. A is divided by its largest
    element, so that squares neither overflow nor vanish; R is multiplied by it again."""
    count = steps_of(a)
    tau = m.graph.full((*a.shape[:-2], count), 0, DType.fp64)
    scale = largest_or_one(m, a).expand(a.shape)
    made, tau = repeated(m.graph, "reflect", count, [a / scale, tau], [], _reflect)
    at = Matrices(m.graph)
    return m.graph.where(at.rows(made) > at.columns(made), made, made * scale), tau


def largest_or_one(m: Importer, a: Tensor) -> Tensor:
    """[batch…, 1, 1]: the largest magnitude of an element; 1 if that is 0 or not finite."""
    largest = a.abs().one("reduce_max", axes=(a.rank - 2, a.rank - 1), keepdims=True)
    return m.graph.where((largest > 0.0).one("and", largest.one("isfinite")), largest, 1.0)


def _reflect(g: Graph, k: Tensor, state: list[Tensor], _: list[Tensor]) -> tuple[Tensor, Tensor]:
    """One step: column k of a becomes (…, beta, 0, …) with beta's sign opposite to alpha's, negative if alpha is 0; tau is
    0 if the column has this form already."""
    at = Matrices(g)
    a, taus = state
    rows, columns = at.rows(a), at.columns(a)
    column = at.column(a, k)
    row = g.iota(column.shape, column.rank - 2)
    below = row.one("gt", k)
    rest = g.where(below, column, 0.0)
    alpha = at.row(column, k)
    size = (rest * rest).one("reduce_sum", axes=(a.rank - 2,), keepdims=True)
    still = size.one("eq", 0.0)
    norm = (alpha * alpha + size).sqrt()
    beta = g.where(still, alpha, g.where(alpha >= 0.0, -norm, norm))
    tau = g.where(still, 0.0, (beta - alpha) / g.where(still, 1.0, beta))
    tail = rest / at.spread(g.where(still, 1.0, alpha - beta), rest)
    vector = g.where(row.one("eq", k), 1.0, tail)
    a = g.where(columns.one("gt", k), applied(at, vector, tau, a), a)
    here = columns.one("eq", k)
    a = at.put(at.put(a, here.one("and", rows.one("gt", k)), tail), here.one("and", rows.one("eq", k)), beta)
    step = g.iota(taus.shape, taus.rank - 1).one("eq", k)
    return a, g.where(step, tau.reshape(*taus.shape[:-1], 1).expand(taus.shape), taus)


def applied(at: Matrices, vector: Tensor, tau: Tensor, x: Tensor) -> Tensor:
    """H x, from vector [batch…, rows, 1], tau [batch…, 1, 1] and x [batch…, rows, columns]."""
    along = (at.spread(vector, x) * x).one("reduce_sum", axes=(x.rank - 2,), keepdims=True)
    return x - at.spread(tau, x) * at.spread(vector, x) * at.spread(along, x)


def product_of(m: Importer, vectors: Tensor, tau: Tensor, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """H1 H2 … Hk X, or its transpose Hk … H1 X. Batches are equal."""
    count = tau.shape[-1]

    def step(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> tuple[Tensor]:
        at = Matrices(g)
        (x,) = state
        vectors, tau = given
        i = k if adjoint else g.size_of(count - 1) - k
        column = at.column(vectors, i)
        row = g.iota(column.shape, column.rank - 2)
        vector = g.where(row.one("gt", i), column, row.one("eq", i).cast(column.dtype))
        return (applied(at, vector, at.row(tau, i), x),)

    return repeated(m.graph, "product_of_reflections", count, [x], [vectors, tau.reshape(*tau.shape, 1)], step)[0]


def product_from_right(m: Importer, vectors: Tensor, tau: Tensor, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """X H1 H2 … Hk, or X times its transpose."""
    return transposed(product_of(m, vectors, tau, transposed(x), adjoint=not adjoint))
