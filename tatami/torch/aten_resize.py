"""Interpolation that PyTorch's own decomposition makes of computed positions, where whole factors need none."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.dtype import DType
from tatami.core.expr import Expr, exact_div
from tatami.frontend.graph_tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer


def nearest(n: int, *, exact: bool) -> Handler:
    """The last n axes, at ``floor(i / scale)``, or ``floor((i + 1/2) / scale)`` when `exact`."""

    def handler(m: Importer, x: Tensor, size: Sequence[object] | None, *rest: float | Sequence[float] | None) -> Tensor:
        """`rest`: a factor for each axis, or one list of them."""
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


def _factor(given: float | None, size: Expr, to: Expr) -> float | None:
    """Of an axis: as given, or as its sizes say; None where they are symbols that do not."""
    if given:
        return float(given)
    whole = exact_div(to, size)
    if whole is not None and whole.as_int() is not None:
        return float(whole.as_int() or 1)
    have, want = size.as_int(), to.as_int()
    return want / have if have and want else None


def _picked(m: Importer, x: Tensor, axis: int, to: Expr, exact: bool) -> Tensor:
    """By positions that are computed from the sizes."""
    size, wanted = (m.graph.size_of(s).cast(DType.fp32) for s in (x.shape[axis], to))
    at = m.graph.iota((to,), 0).cast(DType.fp32)
    near = ((at + 0.5 if exact else at) * (size / wanted)).floor().cast(DType.i64)
    return x.take(near.minimum(m.graph.size_of(x.shape[axis] - 1)), axis=axis)


RESIZE: dict[str, Handler] = {
    f"aten.{name}{n}d.{overload}": nearest(n, exact=name.endswith("exact"))
    for name in ("upsample_nearest", "_upsample_nearest_exact")
    for n in (1, 2, 3)
    for overload in ("default", "vec")
}
