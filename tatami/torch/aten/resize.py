"""Interpolation by whole factors and antialiased resizing. PyTorch's own decompositions use computed positions, which whole
factors do not need; it does not decompose antialiased resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Expr, IntoExpr, exact_div, expr
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, constant_int
from tatami.torch.refusal import Refusal


def nearest(n: int, *, exact: bool) -> Handler:
    """Handler of upsample_nearest{n}d: the last n axes read at ``floor(i / scale)``, or ``floor((i + 1/2) / scale)`` if
    `exact`."""

    def handler(m: Importer, x: Tensor, size: Sequence[object] | None, *rest: float | Sequence[float] | None) -> Tensor:
        """The resized tensor. `rest`: a factor for each axis, or one list of them."""
        listed = [f for r in rest for f in (r if isinstance(r, Sequence) else (r,))]
        given = listed if len(listed) == n else [None] * n
        factors = [_factor(f, *sizes) for f, *sizes in zip(given, x.shape[-n:], m.shape[-n:], strict=True)]
        lead = x.rank - n
        if all(f is not None for f in factors):
            how = ("half_pixel", "round_prefer_ceil") if exact else ("asymmetric", "floor")
            scales = (*(1.0 for _ in range(lead)), *(f or 1.0 for f in factors))
            return x.resize(m.shape, scales=scales, coordinates=how[0], nearest=how[1])
        for axis in range(lead, x.rank):
            x = _picked(m, x, axis, m.shape[axis], exact)
        return x

    return handler


def linear(m: Importer, x: Tensor, size: object, align_corners: bool, *rest: float | Sequence[float] | None) -> Tensor:
    """Handler of linear interpolation (upsample_linear1d and the like): the resized tensor. `rest`: a factor for each axis, or one
    list of them."""
    n = x.rank - 2
    listed = [f for r in rest for f in (r if isinstance(r, Sequence) else (r,))]
    given = listed if len(listed) == n and not align_corners else [None] * n
    factors = [_factor(f, *sizes) for f, *sizes in zip(given, x.shape[2:], m.shape[2:], strict=True)]
    known = not align_corners and all(f is not None for f in factors)
    scales = (1.0, 1.0, *(f or 1.0 for f in factors)) if known else ()
    how = "align_corners" if align_corners else "half_pixel"
    wide = x if x.dtype.is_float else x.cast(DType.fp32)  # a mean of pixels in whole numbers, rounded at the end
    y = wide.resize(m.shape, scales=scales, mode="linear", coordinates=how)
    return y if x.dtype.is_float else y.round().cast(x.dtype)


def linear_backward(m: Importer, grad: Tensor, size: object, of: object, align_corners: bool, *factors: float | None) -> Tensor:
    """Handler of the gradient of linear interpolation: a product with a matrix of weights along each axis."""
    given = factors if len(factors) == grad.rank - 2 else [None] * (grad.rank - 2)
    matrices = {}
    for axis, factor in enumerate(given, 2):
        want, have = _numbers(grad, m, axis)
        matrices[axis] = _linear_weights(have, want, align_corners, factor)
    return _weighted(m, grad, matrices)


def _linear_weights(have: int, want: int, align_corners: bool, factor: float | None) -> np.ndarray:
    """[want, have] weights of linear interpolation, with PyTorch's positions: 1 - |position - place|, not below 0."""
    out = np.arange(want)[:, None]
    if align_corners:
        at = out * ((have - 1) / max(want - 1, 1))
    else:
        at = (out + 0.5) * (1 / factor if factor else have / want) - 0.5
    return np.maximum(1 - np.abs(np.clip(at, 0, have - 1) - np.arange(have)), 0.0)


def _factor(given: float | None, size: Expr, to: Expr) -> float | None:
    """Scale of an axis: as given, or from its sizes; None if symbols leave it open."""
    if given:
        return float(given)
    whole = exact_div(to, size)
    if whole is not None and whole.as_int() is not None:
        return float(whole.as_int() or 1)
    have, want = size.as_int(), to.as_int()
    return want / have if have and want else None


def _picked(m: Importer, x: Tensor, axis: int, to: Expr, exact: bool) -> Tensor:
    """The axis read at positions computed from the sizes."""
    size, wanted = (m.graph.size_of(s).cast(DType.fp32) for s in (x.shape[axis], to))
    at = m.graph.iota((to,), 0).cast(DType.fp32)
    near = ((at + 0.5 if exact else at) * (size / wanted)).floor().cast(DType.i64)
    return x.take(near.minimum(m.graph.size_of(x.shape[axis] - 1)), axis=axis)


def antialiased(weight: Callable[[np.ndarray], np.ndarray], reach: int) -> Handler:
    """Handler of antialiased upsampling: each element is a weighted mean of those around it, `reach` on either side in
    units of the coarser grid: a product with a matrix of weights along each axis."""

    def handler(
        m: Importer, x: Tensor, size: object, align_corners: bool, high: float | None = None, across: float | None = None
    ) -> Tensor:
        def matrix(axis: int, factor: float | None) -> np.ndarray:
            return _weights(*_numbers(x, m, axis), align_corners, factor, weight, reach).T

        return _weighted(m, x, {x.rank - 1: matrix(x.rank - 1, across), x.rank - 2: matrix(x.rank - 2, high)})

    return handler


def antialiased_backward(weight: Callable[[np.ndarray], np.ndarray], reach: int) -> Handler:
    """Handler of the gradient of antialiased upsampling: products with the transposed weights."""

    def handler(
        m: Importer, grad: Tensor, size: object, of: object, align_corners: bool, high: float | None = None,
        across: float | None = None,
    ) -> Tensor:  # fmt: skip
        def matrix(axis: int, factor: float | None) -> np.ndarray:
            want, have = _numbers(grad, m, axis)
            return _weights(have, want, align_corners, factor, weight, reach)

        return _weighted(m, grad, {grad.rank - 1: matrix(grad.rank - 1, across), grad.rank - 2: matrix(grad.rank - 2, high)})

    return handler


def adaptive_average_backward(m: Importer, grad: Tensor, x: Tensor) -> Tensor:
    """_adaptive_avg_pool2d_backward: an element gets its share of the gradient of each window that contains it; window o
    reads from floor(o*size/count) up to ceil((o+1)*size/count)."""
    matrices = {}
    for axis in range(x.rank - 2, x.rank):
        have, count = (constant_int(t.shape[axis], "the size of an adaptive pooling") for t in (x, grad))
        window, place = np.arange(count)[:, None], np.arange(have)[None]
        first, last = window * have // count, -(-(window + 1) * have // count)
        matrices[axis] = ((place >= first) & (place < last)) / (last - first)
    return _weighted(m, grad, matrices)


def edge_backward(n: int) -> Handler:
    """Handler of replication_pad{n}d_backward."""

    def handler(m: Importer, grad: Tensor, x: Tensor, padding: Sequence[IntoExpr]) -> Tensor:
        """Gradients in a border are added to that of the edge element which the border repeats."""
        for k in range(n):
            axis, low = x.rank - 1 - k, expr(padding[2 * k])
            last = m.graph.size_of(x.shape[axis] - 1)
            at = (m.graph.iota((grad.shape[axis],), 0) - m.graph.size_of(low)).maximum(0).minimum(last)
            start = m.graph.full((*grad.shape[:axis], x.shape[axis], *grad.shape[axis + 1 :]), 0, grad.dtype)
            grad = start.scatter(axis, at.expand(grad.shape, dims=(axis,)), grad, "add")
        return grad

    return handler


def _numbers(x: Tensor, m: Importer, axis: int) -> tuple[int, int]:
    """(size of an axis of the operand, its size in the result), which must be numbers."""
    return constant_int(x.shape[axis], "a size of an image"), constant_int(m.shape[axis], "a size of an image")


def _weighted(m: Importer, x: Tensor, matrices: dict[int, np.ndarray]) -> Tensor:
    """Axes multiplied by a matrix of constants [before, after] each."""
    if not x.dtype.is_float:
        raise Refusal(f"weighted means of elements of type {x.dtype}")
    wide = x.cast(DType.fp32) if x.dtype.is_narrow_float else x
    for axis, weights in matrices.items():
        matrix = m.graph.constant(np.ascontiguousarray(weights)).cast(wide.dtype)
        if axis == x.rank - 1:
            wide = wide.matmul(matrix)
        else:
            wide = wide.transpose(axis, x.rank - 1).matmul(matrix).transpose(axis, x.rank - 1)
    return wide.cast(x.dtype)


def _weights(
    have: int, want: int, align_corners: bool, factor: float | None, weight: Callable[[np.ndarray], np.ndarray], reach: int
) -> np.ndarray:
    """[want, have] weights in fp64, rows of sum 1, with PyTorch's positions."""
    if align_corners:
        step = (have - 1) / (want - 1) if want > 1 else 0.0
    else:
        step = 1 / factor if factor else have / want
    coarse = max(step, 1.0)
    centre = step * (np.arange(want) + 0.5)[:, None]
    first = np.maximum((centre - reach * coarse + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + reach * coarse + 0.5).astype(np.int64), have)
    place = np.arange(have)[None]
    out = np.where((place >= first) & (place < last), weight((place - centre + 0.5) / coarse), 0.0)
    total: np.ndarray = out.sum(1, keepdims=True)
    return out / np.where(total == 0, 1.0, total)


def linear_weight(x: np.ndarray) -> np.ndarray:
    """The linear kernel at distance x."""
    return np.maximum(1.0 - np.abs(x), 0.0)


def cubic_weight(x: np.ndarray, a: float = -0.5) -> np.ndarray:
    """Keys' cubic kernel at distance x."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


LINEAR = ("linear1d", "bilinear2d", "trilinear3d")
"""Names of linear interpolation by the number of axes, after `upsample_`."""
RESIZE: dict[str, Handler] = {
    f"aten.{name}{n}d.{overload}": nearest(n, exact=name.endswith("exact"))
    for name in ("upsample_nearest", "_upsample_nearest_exact")
    for n in (1, 2, 3)
    for overload in ("default", "vec")
} | {
    **{f"aten.upsample_{name}.{overload}": linear for name in LINEAR for overload in ("default", "vec")},
    **{f"aten.upsample_{name}_backward.default": linear_backward for name in LINEAR},
    "aten._upsample_bilinear2d_aa.default": antialiased(linear_weight, 1),
    "aten._upsample_bicubic2d_aa.default": antialiased(cubic_weight, 2),
    "aten._upsample_bilinear2d_aa_backward.default": antialiased_backward(linear_weight, 1),
    "aten._upsample_bicubic2d_aa_backward.default": antialiased_backward(cubic_weight, 2),
    "aten._adaptive_avg_pool2d_backward.default": adaptive_average_backward,
    **{f"aten.replication_pad{n}d_backward.default": edge_backward(n) for n in (1, 2, 3)},
}
"""Handlers of this file by overload."""
