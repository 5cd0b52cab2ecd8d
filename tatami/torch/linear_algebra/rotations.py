"""Jacobi's method as loops of a frontend graph: rotations of pairs of columns until all are orthogonal, in fp64.

A round rotates all columns at once, in disjoint pairs; the rounds of a sweep pair each column with every other once, as in
a tournament. The method ends after a sweep in which all pairs are orthogonal up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.importer import Importer
from tatami.torch.linear_algebra.elimination import transposed
from tatami.torch.repeated import repeated_until

SWEEPS = 40
"""Maximum number of sweeps; 6 to 12 are usual."""
ROUNDING = 2.0**-50
"""Cosine of the angle between two columns up to which they count as orthogonal."""
Round: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
"""Function of (graph, matrices, partner of each column, others) that returns (the matrices with rotated columns, each
column's distance from orthogonal)."""


def orthogonal_columns(m: Importer, a: Tensor) -> tuple[Tensor, Tensor]:
    """(A V, V) with orthogonal columns, V a product of rotations (Hestenes): norms of the columns of A V are the singular
    values of A."""
    g, rows = m.graph, a.shape[-2]
    both = g.concat([a, identity(g, (*a.shape[:-2], a.shape[-1], a.shape[-1]))], a.rank - 2)

    def turned(g: Graph, both: Tensor, partner: Tensor) -> tuple[Tensor, Tensor]:
        columns, _ = both.split([rows, both.shape[-2] - rows], axis=both.rank - 2)
        other = _of_partners(columns, partner, columns.rank - 1)
        norms, theirs = _sum_of_rows(columns * columns), _sum_of_rows(other * other)
        cross = g.where(_rests(g, partner, norms), 0.0, _sum_of_rows(columns * other))
        angle = _angle(g, cross, (norms * theirs).sqrt())
        c, s = _rotation(g, norms, theirs, g.where(angle > ROUNDING, cross, 0.0), partner)
        return _turned(both, c, s, partner, both.rank - 1), angle

    out = _swept(m, both, a.shape[-1], turned)
    found, v = out.split([rows, out.shape[-2] - rows], axis=out.rank - 2)
    return found, v


def diagonalised(m: Importer, a: Tensor) -> tuple[Tensor, Tensor]:
    """(eigenvalues, V) of symmetric matrices A = V diag(…) Vᵀ, in no order."""
    g, n = m.graph, a.shape[-1]
    both = g.concat([a, identity(g, a.shape)], a.rank - 2)
    scale = a.abs().one("reduce_max", axes=(a.rank - 2, a.rank - 1), keepdims=True)

    def turned(g: Graph, both: Tensor, partner: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        matrix, v = both.split([n, n], axis=both.rank - 2)
        rank = matrix.rank
        spread = scale.expand((*matrix.shape[:-2], ONE, n))
        own = _sum_of_rows(g.where(g.iota(matrix.shape, rank - 2).one("eq", g.iota(matrix.shape, rank - 1)), matrix, 0.0))
        theirs = _of_partners(own, partner, rank - 1)
        is_theirs = g.iota(matrix.shape, rank - 2).one("eq", partner.expand(matrix.shape, dims=(rank - 1,)))
        cross = g.where(_rests(g, partner, own), 0.0, _sum_of_rows(g.where(is_theirs, matrix, 0.0)))
        angle = _angle(g, cross, spread)
        c, s = _rotation(g, own, theirs, g.where(angle > ROUNDING, cross, 0.0), partner)
        matrix = _turned(matrix, c, s, partner, rank - 1)
        matrix = _turned(matrix, transposed(c), transposed(s), partner, rank - 2)
        return g.concat([matrix, _turned(v, c, s, partner, rank - 1)], rank - 2), angle

    out = _swept(m, both, n, turned, [scale])
    matrix, v = out.split([n, n], axis=out.rank - 2)
    return matrix.diagonal(), v


def identity(g: Graph, shape: tuple[Expr, ...]) -> Tensor:
    """[batch…, rows, columns] in fp64, 1 on the diagonal."""
    rank = len(shape)
    return g.iota(shape, rank - 2).one("eq", g.iota(shape, rank - 1)).cast(DType.fp64)


def _swept(m: Importer, both: Tensor, columns: Expr, turned: Round, others: Sequence[Tensor] = ()) -> Tensor:
    """The matrices after rounds until a sweep finds all columns orthogonal."""
    g = m.graph
    rounds = ceildiv(columns, 2) * 2 - 1

    def round_of(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> list[Tensor]:
        both, largest = state
        count = g.size_of(rounds)
        made, angle = turned(g, both, _partners(g, columns, k.one("mod", count), count), *given)
        largest = largest.maximum(angle.one("reduce_max", axes=tuple(range(angle.rank))))
        ends = (k + 1).one("mod", count).one("eq", 0)
        return [made, g.where(ends, 0.0, largest), ends.logical_not().one("or", largest > ROUNDING)]

    return repeated_until(g, "rotate", rounds * SWEEPS, [both, g.number(0.0, DType.fp64)], others, round_of)[0]


def _partners(g: Graph, columns: Expr, at: Tensor, rounds: Tensor) -> Tensor:
    """The partner of each column in round `at`: column (at - i) mod rounds for column i. A column that would be its own
    partner is paired with the last column; without one it rests, as its own partner."""
    i = g.iota((columns,), 0)
    other = (at - i).one("mod", rounds)
    half = (at * ((rounds + 1).one("idiv", 2))).one("mod", rounds)
    other = g.where(i.one("eq", rounds), half, g.where(other.one("eq", i), rounds, other))
    return g.where(other.one("ge", g.size_of(columns)), i, other)


def _rests(g: Graph, partner: Tensor, like: Tensor) -> Tensor:
    """True for columns that are their own partners."""
    return partner.one("eq", g.iota(partner.shape, 0)).expand(like.shape, dims=(like.rank - 1,))


def _angle(g: Graph, cross: Tensor, size: Tensor) -> Tensor:
    """Distance of two columns from orthogonal: |cross| / size, 0 if size is 0."""
    return g.where(size > 0.0, cross.abs() / g.where(size > 0.0, size, 1.0), 0.0)


def _rotation(g: Graph, own: Tensor, theirs: Tensor, cross: Tensor, partner: Tensor) -> tuple[Tensor, Tensor]:
    """(c, s) of x <- c x - s x_partner for each column; both columns of a pair have the same c, and s of opposite signs."""
    rank = own.rank
    first = g.iota(partner.shape, 0).one("lt", partner).expand(own.shape, dims=(rank - 1,))
    still = cross.one("eq", 0.0)
    zeta = (theirs - own) * 0.5 / g.where(still, 1.0, cross)
    side = g.where(zeta.one("eq", 0.0), g.where(first, 1.0, -1.0), zeta.sign())
    t = g.where(still, 0.0, side / (zeta.abs() + (zeta * zeta + 1.0).sqrt()))
    c = 1.0 / (t * t + 1.0).sqrt()
    return c, c * t


def _turned(x: Tensor, c: Tensor, s: Tensor, partner: Tensor, axis: int) -> Tensor:
    """The rotated columns c x - s x_partner along an axis."""
    return c.expand(x.shape) * x - s.expand(x.shape) * _of_partners(x, partner, axis)


def _of_partners(x: Tensor, partner: Tensor, axis: int) -> Tensor:
    return x.take(partner, axis=axis, bounds="clamp")


def _sum_of_rows(x: Tensor) -> Tensor:
    """Sum over the rows, [batch…, 1, columns]."""
    return x.one("reduce_sum", axes=(x.rank - 2,), keepdims=True)
