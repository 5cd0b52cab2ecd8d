"""Derivatives of products: products again, each with its own operands as they are."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.expr import ZERO, Expr, exact_div, expr, product
from tatami.derivative.step import Cotangents, Rule, Step, in_shape, summed_to
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.graph_api.windows import read_by_windows
from tatami.frontend.operations.contraction import conv_padding
from tatami.frontend.operations.windows import filled


def _own(s: Step) -> Tensor:
    """The cotangent in the dtype of the factors."""
    return s.g.cast(s[0].dtype)


def _matmul(s: Step) -> Cotangents:
    a, b, g = s[0], s[1], _own(s)
    left = a.unsqueeze(0) if a.rank == 1 else a
    right = b.unsqueeze(1) if b.rank == 1 else b
    if b.rank == 1:
        g = g.unsqueeze(g.rank)
    if a.rank == 1:
        g = g.unsqueeze(g.rank - 1)
    acc = s.attrs.acc_dtype
    of_a = of_b = None
    if s.needs(0):
        of_a = in_shape(summed_to(g.one("matmul", right.transpose(), acc_dtype=acc), left.shape), a.shape)
    if s.needs(1):
        if right.rank == 2 and left.rank > 2:  # all rows of all batches are rows of one product
            rows = product(left.shape[:-1])
            left, g = left.reshape((rows, left.shape[-1])), g.reshape((rows, g.shape[-1]))
        of_b = in_shape(summed_to(left.transpose().one("matmul", g, acc_dtype=acc), right.shape), b.shape)
    return [of_a, of_b]


def _gemm(s: Step) -> Cotangents:
    a, b, at = s[0], s[1], s.attrs
    g = _own(s) * at.alpha if at.alpha != 1.0 else _own(s)
    acc = at.acc_dtype
    of_a = of_b = of_c = None
    if s.needs(0):
        other = b.transpose() if not at.trans_b else b
        of_a = g.one("matmul", other, acc_dtype=acc)
        of_a = of_a.transpose() if at.trans_a else of_a
    if s.needs(1):
        other = a.transpose() if not at.trans_a else a
        of_b = other.one("matmul", g, acc_dtype=acc)
        of_b = of_b.transpose() if at.trans_b else of_b
    if s.needs(2):
        of_c = summed_to(s.g.cast(s[2].dtype) * at.beta, s[2].shape)
    return [of_a, of_b, of_c]


def _linear(s: Step) -> Cotangents:
    x, w, g = s[0], s[1], _own(s)
    rows, acc = product(x.shape[:-1]), s.attrs.acc_dtype
    of_x = g.one("matmul", w, acc_dtype=acc) if s.needs(0) else None
    of_w = of_b = None
    if s.needs(1):
        flat = g.reshape((rows, w.shape[0])).transpose()
        of_w = flat.one("matmul", x.reshape((rows, w.shape[1])), acc_dtype=acc)
    if s.needs(2):
        of_b = summed_to(s.g.cast(s[2].dtype), s[2].shape)
    return [of_x, of_w, of_b]


def _grouped_matmul(s: Step) -> Cotangents:
    """The weights' cotangent is a product per group, of the rows of that group."""
    x, w, ends, g = s[0], s[1], s[2], _own(s)
    acc = s.attrs.acc_dtype
    of_x = g.one("grouped_matmul", w.transpose(), ends, acc_dtype=acc) if s.needs(0) else None
    of_w = None
    if s.needs(1):
        groups, rows = w.shape[0], x.shape[0]
        row = s.graph.one("iota", shape=(groups, rows), axis=1)
        upto = ends.cast(row.dtype).expand((groups, rows), dims=[0])
        before = upto <= row
        group = before.cast(row.dtype).sum(0).expand((groups, rows), dims=[1])
        mine = (s.graph.one("iota", shape=(groups, rows), axis=0) == group).cast(x.dtype)
        full = (groups, rows, x.shape[1])
        own = x.expand(full, dims=[1, 2]) * mine.expand(full, dims=[0, 1])
        of_w = own.transpose().one("matmul", g.expand((groups, *g.shape), dims=[1, 2]), acc_dtype=acc)
    return [of_x, of_w, None]


def _einsum(s: Step) -> Cotangents | None:
    """einsum of the cotangent and the other operands; None for equations with a diagonal, a sum of one operand, or `...`."""
    left, arrow, out = s.attrs.equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in left or any(len(set(t)) != len(t) for t in terms):
        return None
    sizes = {
        c: size for t, x in zip(terms, s.operands, strict=True) if x is not None for c, size in zip(t, x.shape, strict=True)
    }
    for i, (t, x) in enumerate(zip(terms, s.operands, strict=True)):
        others = set(out).union(*(set(o) for k, o in enumerate(terms) if k != i))
        if x is None or not set(t) <= others or any(sizes[c] != n for c, n in zip(t, x.shape, strict=True)):
            return None
    result: list[Tensor | None] = []
    for i, term in enumerate(terms):
        if not s.needs(i):
            result.append(None)
            continue
        rest = [k for k in range(len(terms)) if k != i]
        equation = ",".join([out, *(terms[k] for k in rest)]) + f"->{term}"
        result.append(s.graph.one("einsum", _own(s), *(s[k] for k in rest), equation=equation, acc_dtype=s.attrs.acc_dtype))
    return result


def _of_bias(s: Step) -> Tensor | None:
    """The sum over everything but the channels."""
    if not s.needs(2):
        return None
    channel = s.g.rank - (s[1].rank - 2) - 1
    return s.g.cast(s[2].dtype).sum([k for k in range(s.g.rank) if k != channel])


def _with_batch(s: Step) -> tuple[Tensor, Tensor]:
    """The input and the cotangent, with a batch of 1 where the operation has none."""
    x, g = s[0], _own(s)
    return (x, g) if x.rank == s[1].rank else (x.unsqueeze(0), g.unsqueeze(0))


def _steps(s: Step) -> Steps:
    """Stride, padding and dilation of a convolution, a number or a pair for each dimension of its window."""
    a, n = s.attrs, s[1].rank - 2
    return filled(a.stride, n), conv_padding(a.padding, n), filled(a.dilation, n)


def _conv(s: Step) -> Cotangents | None:
    """The input's is the opposite convolution with the same weight; the weight's correlates input and cotangent over the
    batch, with stride and dilation exchanged."""
    w, a = s[1], s.attrs
    x, g = _with_batch(s)
    stride, padding, dilation = _steps(s)
    if s.needs(1) and any(size.as_int() is None for size in g.shape[2:]):
        return None
    of_x = of_w = None
    if s.needs(0):
        extra = []
        for i in range(w.rank - 2):
            reached = (g.shape[2 + i] - 1) * stride[i] + dilation[i] * (w.shape[2 + i] - 1) + 1 - padding[i][0] - padding[i][1]
            extra.append((x.shape[2 + i] - reached).as_int())
        more = tuple(k if k is not None else stride[i] - 1 for i, k in enumerate(extra))
        given = {"stride": stride, "padding": padding, "output_padding": more, "dilation": dilation, "groups": a.groups}
        whole = g.one("conv_transpose", w, **given, acc_dtype=a.acc_dtype)
        of_x = in_shape(_cropped(whole, (*whole.shape[:2], *x.shape[2:])), s[0].shape)
    if s.needs(1):
        of_w = _weight_cotangent(s, x, g, (stride, padding, dilation))
    return [of_x, of_w, _of_bias(s)]


def _conv_transpose(s: Step) -> Cotangents | None:
    w, a = s[1], s.attrs
    x, g = _with_batch(s)
    stride, padding, dilation = _steps(s)
    if s.needs(1) and any(size.as_int() is None for size in x.shape[2:]):
        return None
    of_x = None
    if s.needs(0):
        given = {"stride": stride, "padding": padding, "dilation": dilation, "groups": a.groups, "acc_dtype": a.acc_dtype}
        whole = g.one("conv", w, **given)
        of_x = in_shape(_cropped(whole, (*whole.shape[:2], *x.shape[2:])), s[0].shape)
    of_w = _weight_cotangent(s, g, x, (stride, padding, dilation)) if s.needs(1) else None
    return [of_x, of_w, _of_bias(s)]


Steps = tuple[tuple[int, ...], Sequence[tuple[Expr, Expr]], tuple[int, ...]]
"""Stride, padding and dilation of each spatial axis."""


def _weight_cotangent(s: Step, image: Tensor, error: Tensor, steps: Steps) -> Tensor | None:
    """image (N, g*Ci, L..), error (N, g*Co, P..) -> (g*Co, Ci, k..): a convolution whose kernel is the error and whose channels
    are the batch."""
    stride, padding, dilation = steps
    w, groups, batch = s[1], s.attrs.groups, image.shape[0]
    inner = exact_div(image.shape[1], expr(groups))
    assert inner is not None, "channels that divide into groups"
    wide = image.reshape((batch, groups, inner, *image.shape[2:]))
    swapped = wide.permute([2, 1, 0, *range(3, wide.rank)]).reshape((inner, batch * groups, *image.shape[2:]))
    kernel = error.permute([1, 0, *range(2, error.rank)])
    spans = [(p - 1) * t + (k - 1) * d + 1 for p, t, k, d in zip(error.shape[2:], stride, w.shape[2:], dilation)]
    swapped, around = read_by_windows(swapped, padding, spans)
    given = {"stride": dilation, "padding": around, "dilation": stride, "groups": groups}
    out = swapped.one("conv", kernel, **given, acc_dtype=s.attrs.acc_dtype)
    out = _cropped(out, (*out.shape[:2], *w.shape[2:]))
    return out.permute([1, 0, *range(2, out.rank)])


def _cropped(x: Tensor, shape: Sequence[Expr]) -> Tensor:
    """The first elements of each axis, as many as `shape` has."""
    if tuple(shape) == x.shape:
        return x
    return x.one("slice", starts=(ZERO,) * x.rank, stops=tuple(shape))


CONTRACTION: dict[str, Rule] = {
    "matmul": _matmul,
    "gemm": _gemm,
    "linear": _linear,
    "grouped_matmul": _grouped_matmul,
    "einsum": _einsum,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
"""Rules of this family by operation."""
