"""Pooling, and the gradients of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, expr, maximum, product
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.aten.index import integers
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, constant_int
from tatami.torch.refusal import Refusal

Sizes = Sequence[int | Expr]


def _numbers(values: Sizes, n: int, default: Sequence[int]) -> tuple[int, ...]:
    given = [constant_int(v, "an attribute of a pooling") for v in values] or list(default)
    return tuple(given * n if len(given) == 1 else given)


class _Windows(TypedDict):
    """The attributes that all windows have."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[Expr, Expr], ...]
    dilation: tuple[int, ...]


def _attributes(kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, n: int) -> _Windows:
    size = _numbers(kernel, n, ())
    return {
        "kernel": size,
        "stride": _numbers(stride, n, size),
        "padding": tuple((expr(p), expr(p)) for p in _numbers(padding, n, (0,))),
        "dilation": _numbers(dilation, n, (1,)),
    }


def max_pool_with_indices(n: int) -> Handler:
    """Handler of max_pool{n}d_with_indices: (maxima, positions in the plane of one channel)."""

    def handler(
        m: Importer,
        x: Tensor,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        dilation: Sizes = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Positions are those of the first maximum, or of the last NaN, in the plane of one channel."""
        attrs = _attributes(kernel, stride, padding, dilation, n)
        value = x.one("max_pool", **attrs, ceil_mode=ceil_mode)
        plane = product(x.shape[-n:])
        at = x.one("max_pool_indices", **attrs, ceil_mode=ceil_mode).one("mod", m.tensor(plane, DType.i64))
        if x.dtype.is_float:
            nans = m.graph.where(x.one("isnan"), _places(m, x, n), -1)
            last = nans.one("max_pool", **attrs, ceil_mode=ceil_mode)
            at = m.graph.where(last < 0, at, last.cast(DType.i64))
        return value, at

    return handler


def _places(m: Importer, x: Tensor, n: int) -> Tensor:
    """The position of every element in its plane; as i32 if it is large enough."""
    plane = product(x.shape[-n:]).as_int()
    dtype = DType.i32 if plane is not None and plane < 2**31 else DType.i64
    at = m.graph.iota(x.shape, x.rank - n, dtype)
    for axis in range(x.rank - n + 1, x.rank):
        at = at * m.tensor(x.shape[axis], dtype) + m.graph.iota(x.shape, axis, dtype)
    return at


def max_pool_backward(n: int) -> Handler:
    """Handler of max_pool{n}d_with_indices_backward."""

    def handler(m: Importer, grad: Tensor, x: Tensor, *rest: object) -> Tensor:
        """Every window's gradient is added at the position of its maximum."""
        at = rest[-1]
        assert isinstance(at, Tensor)
        lead = x.shape[:-n]
        flat_x, flat = (*lead, product(x.shape[-n:])), (*lead, product(grad.shape[-n:]))
        start = m.graph.full(flat_x, 0, grad.dtype)
        return start.scatter(len(flat_x) - 1, at.reshape(flat), grad.reshape(flat), "add").reshape(x.shape)

    return handler


def max_unpool(n: int) -> Handler:
    """Handler of max_unpool{n}d."""

    def handler(m: Importer, x: Tensor, indices: Tensor, *_: object) -> Tensor:
        """Every element at its position in the plane of its channel, else 0."""
        if ZERO in (*x.shape, *m.shape):
            return m.graph.full(m.shape, 0, x.dtype)
        lead = m.shape[:-n]
        plane, flat = product(m.shape[-n:]), (*lead, product(x.shape[-n:]))
        at, bounds = m.within(integers(indices).reshape(flat), plane)
        start = m.graph.full((*lead, plane), 0, x.dtype)
        return start.scatter(len(lead), at, x.reshape(flat), "set", bounds).reshape(m.shape)

    return handler


def avg_pool(n: int) -> Handler:
    """Handler of avg_pool{n}d, with ceil_mode and any divisor."""

    def handler(
        m: Importer, x: Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Tensor:  # fmt: skip
        attrs = _attributes(kernel, stride, padding, (1,), n)
        if divisor_override is None:
            return x.one("avg_pool", **attrs, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        whole = 1
        for k in attrs["kernel"]:
            whole *= k
        if ceil_mode:
            x, attrs["padding"] = _up_to_the_last_window(m, x, attrs, n), ()
        mean = x.one("avg_pool", **attrs, count_include_pad=True)
        return mean * (whole / constant_int(divisor_override, "the divisor"))

    return handler


def _up_to_the_last_window(m: Importer, x: Tensor, attrs: _Windows, n: int) -> Tensor:
    """`x` padded with zeros so that every window of the result lies inside."""
    border = []
    for i in range(n):
        size, (low, high) = x.shape[x.rank - n + i], attrs["padding"][i]
        end = (m.shape[-n:][i] - 1) * attrs["stride"][i] + attrs["kernel"][i]
        border.append((low, maximum(end - size - low, high)))
    return x.pad([*[(expr(0), expr(0))] * (x.rank - n), *border])


def avg_pool_backward(n: int) -> Handler:
    """Handler of avg_pool{n}d_backward; windows that end outside are refused."""

    def handler(
        m: Importer, grad: Tensor, x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool,
        count_include_pad: bool, divisor_override: int | None,
    ) -> Tensor:  # fmt: skip
        """Each window's gradient, divided by its number of elements, is added to each of them (fold)."""
        attrs = _attributes(kernel, stride, padding, (1,), n)
        if ceil_mode:
            raise Refusal("the gradient of an average over windows that end outside")
        kernel, stride, pads = attrs["kernel"], attrs["stride"], attrs["padding"]
        share = _share(m, grad, x, attrs, n, count_include_pad, divisor_override)
        lead = x.shape[:-n]
        rows = share.reshape(product(lead), *grad.shape[-n:])
        windows = (rows.shape[0], *(expr(k) for k in kernel), *grad.shape[-n:])
        spread = rows.expand(windows, dims=(0, *range(1 + n, 1 + 2 * n)))
        padded = tuple(s + lo + hi for s, (lo, hi) in zip(x.shape[-n:], pads, strict=True))
        reached = tuple((g - 1) * s + k for g, s, k in zip(grad.shape[-n:], stride, kernel, strict=True))
        out = spread.one("fold", size=(rows.shape[0], *reached), kernel=kernel, stride=stride)
        left = [(expr(0), p - r) for p, r in zip(padded, reached, strict=True)]
        crop = [(expr(0) - lo, more - hi) for (lo, hi), (_, more) in zip(pads, left, strict=True)]
        return out.pad([(0, 0), *crop]).reshape(x.shape)

    return handler


def _share(
    m: Importer, grad: Tensor, x: Tensor, attrs: _Windows, n: int, count_include_pad: bool, divisor: int | None
) -> Tensor:
    if divisor is not None:
        return grad / float(divisor)
    if count_include_pad or all(p.as_int() == 0 for pair in attrs["padding"] for p in pair):
        whole = 1
        for k in attrs["kernel"]:
            whole *= k
        return grad / float(whole)
    ones = m.graph.full((expr(1), *x.shape[-n:]), 1, grad.dtype)
    total = 1
    for k in attrs["kernel"]:
        total *= k
    counted = ones.one("avg_pool", **attrs, count_include_pad=True) * float(total)
    return grad / counted.reshape(*grad.shape[-n:]).expand(grad.shape)


def adaptive_avg_pool(n: int) -> Handler:
    """Handler of _adaptive_avg_pool{n}d."""

    def handler(m: Importer, x: Tensor, size: Sizes) -> Tensor:
        """One window is a mean, windows of equal size a pooling; other windows overlap and differ in size."""
        out = m.shape[-n:]
        if any(s == ZERO for s in m.shape):
            return m.graph.full(m.shape, 0, x.dtype)
        if all(o.as_int() == 1 for o in out):
            return x.mean(tuple(range(x.rank - n, x.rank)), keepdims=True)
        kernel = [_window(s, o) for s, o in zip(x.shape[-n:], out, strict=True)]
        if all(kernel):
            return x.avg_pool(kernel, kernel)
        return x.one("adaptive_avg_pool", size=tuple(constant_int(o, "the result's size") for o in out))

    return handler


def _window(size: Expr, count: Expr) -> int:
    """The size of every window, 0 if sizes differ."""
    a, b = size.as_int(), count.as_int()
    return a // b if a is not None and b and a % b == 0 else 0


def adaptive_max_pool(n: int) -> Handler:
    """Handler of adaptive_max_pool{n}d: (maxima, positions in the plane of one channel)."""

    def handler(m: Importer, x: Tensor, size: Sizes) -> tuple[Tensor, Tensor]:
        """The largest element of each window and its position in the plane of one channel.

        Windows are padded to equal length by repeating their last element, so that the first maximum stays first, and the
        last NaN last.
        """
        if any(s == ZERO for s in m.shape):
            return m.graph.full(m.shape, 0, x.dtype), m.graph.full(m.shape, 0, DType.i64)
        spatial = [constant_int(s, "the size of an adaptive pooling") for s in x.shape[-n:]]
        out = [constant_int(s, "the size of an adaptive pooling") for s in m.shape[-n:]]
        windows = [_adaptive_windows(s, o) for s, o in zip(spatial, out, strict=True)]
        positions = m.graph.arange(expr(math.prod(spatial))).reshape(*spatial)
        seen, at = _windows(m, x, windows), _windows(m, positions, windows)
        best = seen.one("argmax", axis=seen.rank - 1, keepdims=True)
        if x.dtype.is_float:
            nans = m.graph.where(seen.one("isnan"), m.graph.iota(seen.shape, seen.rank - 1), -1)
            last = nans.one("reduce_max", axes=(seen.rank - 1,), keepdims=True)
            best = m.graph.where(last < 0, best, last)
        value = seen.gather(seen.rank - 1, best).reshape(m.shape)
        return value, m.filled(at, seen.shape).gather(seen.rank - 1, best).reshape(m.shape)

    return handler


def _adaptive_windows(size: int, count: int) -> np.ndarray:
    """(count, longest): the positions that each window reads, floor(o*size/count) up to ceil((o+1)*size/count)."""
    first = [o * size // count for o in range(count)]
    last = [-(-(o + 1) * size // count) - 1 for o in range(count)]
    longest = max(b - a + 1 for a, b in zip(first, last, strict=True))
    return np.array([[min(a + k, b) for k in range(longest)] for a, b in zip(first, last, strict=True)], np.int64)


def _windows(m: Importer, x: Tensor, windows: Sequence[np.ndarray]) -> Tensor:
    """(.., o.., elements of a window) from (.., spatial..)."""
    n, lead = len(windows), x.rank - len(windows)
    for i, w in enumerate(windows):
        x = x.take(m.graph.constant(w), axis=lead + 2 * i)
    order = [*range(lead), *range(lead, lead + 2 * n, 2), *range(lead + 1, lead + 2 * n, 2)]
    shape = (*x.shape[:lead], *(w.shape[0] for w in windows), math.prod(w.shape[1] for w in windows))
    return x.permute(order).reshape(shape)


POOL: dict[str, Handler] = {
    **{f"aten.max_pool{n}d_with_indices.default": max_pool_with_indices(n) for n in (2, 3)},
    **{f"aten.max_pool{n}d_with_indices_backward.default": max_pool_backward(n) for n in (2, 3)},
    **{f"aten.max_unpool{n}d.default": max_unpool(n) for n in (2, 3)},
    **{f"aten.avg_pool{n}d.default": avg_pool(n) for n in (1, 2, 3)},
    **{f"aten.avg_pool{n}d_backward.default": avg_pool_backward(n) for n in (2, 3)},
    **{f"aten._adaptive_avg_pool{n}d.default": adaptive_avg_pool(n) for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d.default": adaptive_max_pool(n) for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d_backward.default": max_pool_backward(n) for n in (2, 3)},
}
"""Handlers of this file by overload."""
