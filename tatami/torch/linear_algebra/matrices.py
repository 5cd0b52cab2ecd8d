"""Linear equations, inverses, determinants and factors of matrices."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.linear_algebra.elimination import (
    Matrices,
    cholesky_factor,
    factored,
    order_of,
    solved,
    steps_of,
    transposed,
    triangular,
)
from tatami.torch.refusal import Refusal


def lu_factor_ex(m: Importer, a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    """linalg_lu_factor_ex with pivoting: (L and U in one matrix, pivots counted from 1, info)."""
    _check_pivot(pivot)
    lu, pivots = factored(m, _wide(a))
    info = _first_zero(m, lu)
    if check_errors:
        m.check(info, "torch.linalg.lu_factor_ex", a.rank == 2)
    return lu.cast(a.dtype), _one_based(pivots), info


def lu_parts(m: Importer, a: Tensor, *, pivot: bool = True) -> tuple[Tensor, ...]:
    """linalg_lu with pivoting: (P, L, U)."""
    _check_pivot(pivot)
    lu, pivots = factored(m, _wide(a))
    return tuple(x.cast(a.dtype) for x in _unpacked(m, lu, pivots))


def lu_unpack(
    m: Importer, lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, ...]:
    """lu_unpack of both parts: (P, L, U)."""
    if not (unpack_data and unpack_pivots):
        raise Refusal("a part of lu_unpack that is left out")
    return tuple(x.cast(lu.dtype) for x in _unpacked(m, _wide(lu), _zero_based(pivots)))


def _unpacked(m: Importer, lu: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, count = lu.shape[-2], steps_of(lu)
    order = order_of(m, pivots, rows)
    square = (*order.shape[:-2], rows, rows)
    exchanges = order.expand(square).one("eq", m.graph.iota(square, len(square) - 1))
    left, right = _first_of(lu, lu.rank - 1, count), _first_of(lu, lu.rank - 2, count)
    at = Matrices(m.graph)
    low = m.graph.where(at.rows(left).one("eq", at.columns(left)), 1.0, left.tril())
    return transposed(exchanges.cast(lu.dtype)), low, right.triu()


def det(m: Importer, a: Tensor) -> tuple[Tensor | Refusal, ...]:
    """_linalg_det: the determinant; the factors for its gradient are refused."""
    lu, pivots = factored(m, _wide(a))
    product = lu.diagonal().one("reduce_prod", axes=(a.rank - 2,)) * _sign(m, pivots)
    return product.cast(a.dtype), _OF_BACKWARD, _OF_BACKWARD


def slogdet(m: Importer, a: Tensor) -> tuple[Tensor | Refusal, ...]:
    """_linalg_slogdet: (sign, log of the magnitude) of the determinant; the factors for its gradient are refused."""
    lu, pivots = factored(m, _wide(a))
    diagonal = lu.diagonal()
    axes = (a.rank - 2,)
    sign = diagonal.sign().one("reduce_prod", axes=axes) * _sign(m, pivots)
    size = diagonal.abs().log().one("reduce_sum", axes=axes)
    return sign.cast(a.dtype), size.cast(a.dtype), _OF_BACKWARD, _OF_BACKWARD


_OF_BACKWARD = Refusal("factors of a matrix that PyTorch may have transposed")


def inverse_ex(m: Importer, a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """linalg_inv_ex: (inverse, info)."""
    lu, pivots = factored(m, _wide(a))
    at = Matrices(m.graph)
    unit = at.rows(lu).one("eq", at.columns(lu)).cast(DType.fp64)
    info = _first_zero(m, lu)
    if check_errors:
        m.check(info, "linalg.inv_ex", a.rank == 2)
    return solved(m, lu, pivots, unit).cast(a.dtype), info


def solve_ex(
    m: Importer, a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor | Refusal, ...]:
    """_linalg_solve_ex: (X of A X = B or X A = B, factors that are refused, info)."""
    vector = b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1])
    lu, pivots = factored(m, _wide(a))
    given = _wide(b.unsqueeze(-1) if vector else b)
    x = _of_factors(m, lu, pivots, given, left or vector, False)
    info = _first_zero(m, lu)
    if check_errors:
        m.check(info, "torch.linalg.solve_ex", a.rank == 2)
    return (x.squeeze(-1) if vector else x).cast(b.dtype), _OF_BACKWARD, _OF_BACKWARD, info


def lu_solve(m: Importer, lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """linalg_lu_solve: X of A X = B, X A = B or their adjoints, by factors of A."""
    return _of_factors(m, _wide(lu), _zero_based(pivots), _wide(b), left, adjoint).cast(b.dtype)


def _of_factors(m: Importer, lu: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool) -> Tensor:
    if not left:
        return transposed(_of_factors(m, lu, pivots, transposed(b), True, not adjoint))
    batch = _joint_batch(lu, b)
    lu, b = _with_batch(lu, batch), _with_batch(b, batch)
    return solved(m, lu, pivots.expand((*batch, pivots.shape[-1])), b, adjoint)


def solve_triangular(
    m: Importer, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """linalg_solve_triangular: X of A X = B or X A = B for a triangular A."""
    if not left:
        return transposed(solve_triangular(m, transposed(a), transposed(b), upper=not upper, unitriangular=unitriangular))
    batch = _joint_batch(a, b)
    return triangular(m, _with_batch(_wide(a), batch), _with_batch(_wide(b), batch), upper, unitriangular).cast(b.dtype)


def triangular_solve(
    m: Importer, b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """triangular_solve: (X of A X = B for a triangular A or its transpose, A)."""
    of = transposed(a) if transpose else a
    batch = _joint_batch(a, b)
    return solve_triangular(m, of, b, upper=upper != transpose, unitriangular=unitriangular), _with_batch(a, batch)


def cholesky_ex(m: Importer, a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """linalg_cholesky_ex: (factor, info)."""
    low = cholesky_factor(m, _wide(transposed(a) if upper else a))
    info = _first(m, low.diagonal().one("gt", 0.0).logical_not())
    if check_errors:
        m.check(info, "linalg.cholesky_ex", a.rank == 2)
    return (transposed(low) if upper else low).cast(a.dtype), info


def cholesky(m: Importer, a: Tensor, upper: bool = False) -> Tensor:
    """cholesky: the factor; a matrix that is not positive definite raises an error."""
    factor, info = cholesky_ex(m, a, upper=upper)
    m.check(info, "cholesky", a.rank == 2)
    return factor


def check_errors(m: Importer, info: Tensor, name: str, *, is_matrix: bool) -> None:
    """_linalg_check_errors: an error for each matrix whose `info` is not 0."""
    m.check(info, name, is_matrix)


def cholesky_solve(m: Importer, b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """cholesky_solve: X of A X = B by the factor of A."""
    batch = _joint_batch(factor, b)
    low = _with_batch(_wide(transposed(factor) if upper else factor), batch)
    y = triangular(m, low, _with_batch(_wide(b), batch), upper=False, unit=False)
    return triangular(m, transposed(low), y, upper=True, unit=False).cast(b.dtype)


def cholesky_inverse(m: Importer, factor: Tensor, upper: bool = False) -> Tensor:
    """cholesky_inverse: the inverse of A by its factor."""
    at = Matrices(m.graph)
    unit = at.rows(factor).one("eq", at.columns(factor)).cast(factor.dtype)
    return cholesky_solve(m, unit, factor, upper)


def _wide(x: Tensor) -> Tensor:
    return x.cast(DType.fp64)


def _first_of(x: Tensor, axis: int, count: Expr) -> Tensor:
    """The first `count` elements along an axis."""
    return x if x.shape[axis] == count else x.split([count, x.shape[axis] - count], axis=axis)[0]


def _joint_batch(a: Tensor, b: Tensor) -> Shape:
    one, other = a.shape[:-2], b.shape[:-2]
    long, short = (one, other) if len(one) >= len(other) else (other, one)
    short = (*(ONE for _ in range(len(long) - len(short))), *short)
    return tuple(y if x == ONE else x for x, y in zip(long, short, strict=True))


def _with_batch(x: Tensor, batch: Shape) -> Tensor:
    return x.expand((*batch, *x.shape[-2:]))


def _one_based(pivots: Tensor) -> Tensor:
    return (pivots + 1).cast(DType.i32)


def _zero_based(pivots: Tensor) -> Tensor:
    return pivots.cast(DType.i64) - 1


def _sign(m: Importer, pivots: Tensor) -> Tensor:
    """Sign of a permutation: -1 for an odd number of exchanges."""
    moved = pivots.one("ne", m.graph.iota(pivots.shape, pivots.rank - 1))
    return m.graph.where(moved, -1.0, m.graph.full(pivots.shape, 1, DType.fp64)).one("reduce_prod", axes=(pivots.rank - 1,))


def _first_zero(m: Importer, lu: Tensor) -> Tensor:
    count = steps_of(lu)
    square = _first_of(_first_of(lu, lu.rank - 1, count), lu.rank - 2, count)
    return _first(m, square.diagonal().one("eq", 0.0))


def _first(m: Importer, bad: Tensor) -> Tensor:
    """LAPACK's info: the number of the first bad position, counted from 1; 0 if there is none."""
    size = bad.shape[-1]
    places = m.graph.iota(bad.shape, bad.rank - 1) + 1
    found = m.graph.where(bad, places, m.graph.size_of(size + 1)).one("reduce_min", axes=(bad.rank - 1,))
    return m.graph.where(found.one("gt", m.graph.size_of(size)), 0, found).cast(DType.i32)


def _check_pivot(pivot: bool) -> None:
    if not pivot:
        raise Refusal("factors without exchanges of rows")


MATRIX: dict[str, Handler] = {
    "aten.linalg_lu_factor_ex.default": lu_factor_ex,
    "aten.linalg_lu.default": lu_parts,
    "aten.lu_unpack.default": lu_unpack,
    "aten._linalg_det.default": det,
    "aten._linalg_slogdet.default": slogdet,
    "aten.linalg_inv_ex.default": inverse_ex,
    "aten._linalg_solve_ex.default": solve_ex,
    "aten.linalg_lu_solve.default": lu_solve,
    "aten.linalg_solve_triangular.default": solve_triangular,
    "aten.triangular_solve.default": triangular_solve,
    "aten.linalg_cholesky_ex.default": cholesky_ex,
    "aten.cholesky.default": cholesky,
    "aten._linalg_check_errors.default": check_errors,
    "aten.cholesky_solve.default": cholesky_solve,
    "aten.cholesky_inverse.default": cholesky_inverse,
}
"""Handlers of this file by overload."""
