"""Orthogonal factors of matrices: QR, singular values, eigenvalues of symmetric matrices, pseudo-inverses."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Shape
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.linear_algebra.elimination import Matrices, steps_of, transposed
from tatami.torch.linear_algebra.reflections import largest_or_one, product_from_right, product_of, reflected
from tatami.torch.linear_algebra.rotations import diagonalised, identity, orthogonal_columns

ROTATED, REFLECTED = 8, 32
"""Maximum order of a matrix for which loops of rotations (first) or of reflections (second) are faster than the overhead of
a call to PyTorch."""


def geqrf(m: Importer, a: Tensor) -> tuple[Tensor, Tensor]:
    """geqrf: (R on and above the diagonal with the reflections' vectors below it, their tau)."""
    m.leave_larger(a, REFLECTED)
    if ZERO in a.shape:
        return a, m.graph.full(m.shape_at(1), 0, a.dtype)
    made, tau = reflected(m, _wide(a))
    return made.cast(a.dtype), tau.cast(a.dtype)


def qr(m: Importer, a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """linalg_qr: (Q, R); an empty Q in mode "r"."""
    m.leave_larger(a, REFLECTED)
    q, r = m.shape_at(0), m.shape_at(1)
    if ZERO in a.shape:
        return _identity(m, q, a.dtype), m.graph.full(r, 0, a.dtype)
    made, tau = reflected(m, _wide(a))
    upper = _leading(made, r).triu().cast(a.dtype)
    if mode == "r":
        return m.graph.full(q, 0, a.dtype), upper
    return product_of(m, made, tau, identity(m.graph, q)).cast(a.dtype), upper


def householder_product(m: Importer, a: Tensor, tau: Tensor) -> Tensor:
    """linalg_householder_product: the first columns of the product of reflections."""
    m.leave_larger(a, REFLECTED)
    if ZERO in (*a.shape, *tau.shape):
        return _identity(m, m.shape, a.dtype)
    return product_of(m, _wide(a), _wide(tau), identity(m.graph, m.shape)).cast(a.dtype)


def ormqr(m: Importer, a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """ormqr: the product of reflections, or its transpose, times a matrix, from left or right."""
    m.leave_larger(a, REFLECTED)
    if ZERO in (*other.shape, *tau.shape):
        return other
    function = product_of if left else product_from_right
    return function(m, _wide(a), _wide(tau), _wide(other), adjoint=transpose).cast(other.dtype)


def svd(
    m: Importer, a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """_linalg_svd: (U, singular values, V transposed); a matrix that is not finite raises an error."""
    m.leave_larger(a, ROTATED)
    u, s, vh = (m.shape_at(k) for k in range(3))
    if ZERO in a.shape:
        return _identity(m, u, a.dtype), m.graph.full(s, 0, a.dtype), _identity(m, vh, a.dtype)
    _check_finite(m, a, "linalg.svd", -4)
    if not compute_uv:
        none = m.graph.full(u, 0, a.dtype)
        return none, _or_nan(m, a, singular_values(m, a)), m.graph.full(vh, 0, a.dtype)
    left, values, right = _svd(m, _wide(a), whole=full_matrices)
    return _or_nan(m, a, left), _or_nan(m, a, values), _or_nan(m, a, transposed(right))


def singular_values(m: Importer, a: Tensor) -> Tensor:
    """Singular values in fp64, the largest first."""
    found, _, scale = _orthogonal(m, _wide(transposed(a) if _is_wide(a) else a))
    return _norms(found).op("sort", axis=a.rank - 2, descending=True)[0] * scale.expand(found.shape[:-2] + found.shape[-1:])


def _svd(m: Importer, a: Tensor, *, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(U, singular values, V). Columns of U for singular values of 0, and those that `whole` adds, are arbitrary as long as
    U is orthogonal: those of a product of reflections."""
    if _is_wide(a):
        right, values, left = _svd(m, transposed(a), whole=whole)
        return left, values, right
    found, v, scale = _orthogonal(m, a)
    values, order = _norms(found).op("sort", axis=a.rank - 2, descending=True)
    found, v = _columns_in_order(found, order), _columns_in_order(v, order)
    spread = values.reshape(*values.shape[:-1], 1, values.shape[-1]).expand(found.shape)
    positive = spread > 0.0
    made, tau = reflected(m, m.graph.where(positive, found / m.graph.where(positive, spread, 1.0), 0.0))
    rows, columns = a.shape[-2], a.shape[-1]
    size = rows if whole else columns
    u = product_of(m, made, tau, identity(m.graph, (*a.shape[:-2], rows, size)))
    square = _leading(made, v.shape)
    signs = m.graph.where(square.diagonal() < 0.0, -1.0, m.graph.full(values.shape, 1, DType.fp64))
    if size != columns:
        signs = m.graph.concat([signs, m.graph.full((*a.shape[:-2], size - columns), 1, DType.fp64)], values.rank - 1)
    u = u * signs.reshape(*signs.shape[:-1], 1, size).expand(u.shape)
    return u, values * scale.expand(values.shape), v


def _orthogonal(m: Importer, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(A V divided by A's largest element, V, that element [batch…, 1]); 1 for a matrix of zeros."""
    scale = largest_or_one(m, a)
    found, v = orthogonal_columns(m, a / scale.expand(a.shape))
    return found, v, scale.reshape(*a.shape[:-2], 1)


def _norms(columns: Tensor) -> Tensor:
    return (columns * columns).one("reduce_sum", axes=(columns.rank - 2,)).sqrt()


def _columns_in_order(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(x.rank - 1, order.reshape(*order.shape[:-1], 1, order.shape[-1]).expand(x.shape), "clamp")


def eigh(m: Importer, a: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """_linalg_eigh: (eigenvalues, the smallest first, vectors as columns), from one triangle."""
    m.leave_larger(a, ROTATED)
    if ZERO in a.shape:
        return m.graph.full(m.shape_at(0), 0, a.dtype), _identity(m, m.shape_at(1), a.dtype)
    a = a.tril() if uplo.upper() == "L" else a.triu()
    _check_finite(m, a, "linalg.eigh", 1)
    values, v = _eigh(m, a, uplo)
    return _or_nan(m, a, values), _or_nan(m, a, v) if compute_v else m.graph.full(m.shape_at(1), 0, a.dtype)


def _eigh(m: Importer, a: Tensor, uplo: str) -> tuple[Tensor, Tensor]:
    """(eigenvalues, the smallest first, vectors as columns) of the symmetric matrix given by one triangle."""
    wide = _wide(a)
    at = Matrices(m.graph)
    rows, columns = at.rows(wide), at.columns(wide)
    said = rows.one("ge" if uplo.upper() == "L" else "le", columns)
    values, v = diagonalised(m, m.graph.where(said, wide, transposed(wide)))
    values, order = values.op("sort", axis=a.rank - 2)
    return values, _columns_in_order(v, order)


def pinv(m: Importer, a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    """linalg_pinv: V S⁺ Uᵀ; singular values up to max(atol, rtol times the largest) count as 0. With `hermitian` the lower
    triangle is read, and a matrix that is not finite raises no error."""
    m.leave_larger(a, ROTATED)
    if ZERO in a.shape:
        return m.graph.full(m.shape, 0, a.dtype)
    if hermitian:
        a = a.tril()
        values, left = _eigh(m, a, "L")
        right, size = left, values.abs()
    else:
        _check_finite(m, a, "linalg.svd", -4)
        left, values, right = _svd(m, _wide(a), whole=False)
        size = values
    largest = size.one("reduce_max", axes=(a.rank - 2,), keepdims=True)
    bound = _bound(m, a, atol, rtol, largest)
    keep = size > bound.expand(size.shape)
    inverse = m.graph.where(keep, 1.0 / m.graph.where(keep, values, 1.0), 0.0)
    spread = inverse.reshape(*inverse.shape[:-1], 1, inverse.shape[-1]).expand(right.shape)
    return _or_nan(m, a, (right * spread).matmul(transposed(left)))


_EPSILON = {DType.fp32: 2.0**-23, DType.fp64: 2.0**-52}


def _bound(m: Importer, a: Tensor, atol: Tensor | None, rtol: Tensor | None, largest: Tensor) -> Tensor:
    """[batch…, 1]: the largest singular value that counts as 0. Default rtol: epsilon times the longer side without any
    tolerance, 0 with a positive atol alone."""

    def spread(t: Tensor) -> Tensor:
        wide = _wide(t)
        return wide.reshape(*wide.shape, 1).expand(largest.shape) if wide.rank else wide.expand(largest.shape)

    absolute = spread(atol) if atol is not None else m.graph.full(largest.shape, 0, DType.fp64)
    if rtol is not None:
        relative = spread(rtol)
    else:
        longer = m.graph.size_of(a.shape[-2]).maximum(m.graph.size_of(a.shape[-1])).cast(DType.fp64)
        usual = (longer * _EPSILON[a.dtype]).expand(largest.shape)
        relative = m.graph.where(absolute > 0.0, 0.0, usual) if atol is not None else usual
    return absolute.maximum(relative * largest)


def _check_finite(m: Importer, a: Tensor, name: str, info: int) -> None:
    """Raise PyTorch's error for a matrix that is not finite. `info`: LAPACK's info for such a matrix."""
    if m.raises:
        bad = _is_bad(a)
        m.check(m.graph.where(bad, m.graph.number(info, DType.i32), m.graph.full(bad.shape, 0, DType.i32)), name, a.rank == 2)


def _is_bad(a: Tensor) -> Tensor:
    """True for each matrix [batch…] that is not finite."""
    return a.one("isfinite").logical_not().one("reduce_or", axes=(a.rank - 2, a.rank - 1))


def _or_nan(m: Importer, a: Tensor, made: Tensor) -> Tensor:
    """The results `made` of matrices `a`, in their dtype; NaN for matrices that are not finite."""
    bad = _is_bad(a)
    bad = bad.reshape(*bad.shape, *[1] * (made.rank - bad.rank)).expand(made.shape)
    return m.graph.where(bad, math.nan, made.cast(a.dtype))


def _is_wide(a: Tensor) -> bool:
    """True if there are more columns than rows."""
    return steps_of(a) == a.shape[-2] and a.shape[-2] != a.shape[-1]


def _leading(x: Tensor, shape: Shape) -> Tensor:
    """The first rows and columns of `x`, as many as `shape` has."""
    rows, columns = shape[-2], shape[-1]
    for axis, size in ((x.rank - 2, rows), (x.rank - 1, columns)):
        if x.shape[axis] != size:
            x = x.split([size, x.shape[axis] - size], axis=axis)[0]
    return x


def _identity(m: Importer, shape: Shape, dtype: DType) -> Tensor:
    return m.graph.full(shape, 0, dtype) if ZERO in shape else identity(m.graph, shape).cast(dtype)


def _wide(x: Tensor) -> Tensor:
    return x.cast(DType.fp64)


FACTORS: dict[str, Handler] = {
    "aten.geqrf.default": geqrf,
    "aten.linalg_qr.default": qr,
    "aten.linalg_householder_product.default": householder_product,
    "aten.ormqr.default": ormqr,
    "aten._linalg_svd.default": svd,
    "aten._linalg_eigh.default": eigh,
    "aten.linalg_pinv.atol_rtol_tensor": pinv,
}
"""Handlers of this file by overload."""
