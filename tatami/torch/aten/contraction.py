"""Matrix products, convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, exact_div, expr
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.graph_api.windows import read_by_windows
from tatami.torch.aten.reduce import norm_over
from tatami.torch.aten.view import part
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number, constant_int
from tatami.torch.refusal import Refusal


def mm(m: Importer, a: Tensor, b: Tensor, **_: object) -> Tensor:
    """mm, bmm, mv, matmul: the matrix product."""
    return _product(m, a, b)


def _product(m: Importer, a: Tensor, b: Tensor) -> Tensor:
    """Matrix product; 0 if it sums over an axis of size 0."""
    if a.shape[-1] == ZERO or any(s == ZERO for s in m.shape):
        return m.graph.full(m.shape, 0, a.dtype)
    inner = b.shape[-2] if b.rank > 1 else b.shape[0]
    if a.shape[-1] != inner:  # PyTorch has proved them equal, or guards their equality
        a = m.taken_as(a, (*a.shape[:-1], inner))
    if a.dtype == DType.bool:
        return (a.cast(DType.i32) @ b.cast(DType.i32)).cast(DType.bool)
    return a @ b


def dot(m: Importer, a: Tensor, b: Tensor) -> Tensor:
    """dot, vdot: the product of two vectors."""
    return _product(m, a, b)


def _plus(m: Importer, addend: Tensor, product: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta * addend + alpha * product; without the addend if beta is 0, even if it is NaN."""
    scaled = product if alpha == 1 else product * m.tensor(alpha, product.dtype)
    if beta == 0:
        return scaled
    start = addend if beta == 1 else addend * m.tensor(beta, addend.dtype)
    return m.expand(m.cast(start, scaled.dtype), scaled.shape) + scaled


def int_mm(m: Importer, a: Tensor, b: Tensor) -> Tensor:
    """_int_mm: the product of matrices of 8 bits, summed in 32 bits."""
    if a.dtype not in (DType.i8, DType.u8) or b.dtype != DType.i8:
        raise Refusal(f"_int_mm of {a.dtype} and {b.dtype}")
    return a.cast(DType.i16).matmul(b.cast(DType.i16), acc_dtype=DType.i32, out_dtype=DType.i32)


def addmm(m: Importer, addend: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """addmm, baddbmm, addmv: beta * addend + alpha * product."""
    return _plus(m, addend, _product(m, a, b), beta, alpha)


def addbmm(m: Importer, addend: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """addbmm: beta * addend + alpha * the sum of all products of a batch."""
    if any(s == ZERO for s in (*a.shape, *b.shape)):
        return _plus(m, addend, m.graph.full(m.shape, 0, a.dtype), beta, alpha)
    return _plus(m, addend, m.graph.einsum("bik,bkj->ij", a, b), beta, alpha)


def distances_of_pairs(m: Importer, x: Tensor, p: float = 2.0) -> Tensor:
    """_pdist_forward: the p-norms of the differences of all pairs of rows, in the order of combinations."""
    if any(s == ZERO for s in (*m.shape, *x.shape)):
        return m.graph.full(m.shape, 0, x.dtype)
    n = constant_int(x.shape[0], "the number of rows")
    first, second = np.triu_indices(n, 1)
    left, right = (x.take(m.graph.constant(i.astype(np.int64))) for i in (first, second))
    return norm_over(left - right, float(p), (1,), False)


def convolution(
    m: Importer, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int | Expr],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int | Expr], groups: int,
) -> Tensor:  # fmt: skip
    """convolution, transposed or not; a result of empty operands is the bias alone."""
    n = weight.rank - 2
    if any(s == ZERO for s in (*x.shape, *weight.shape)):
        zero = m.graph.full(m.shape, 0, x.dtype)
        return zero if bias is None else zero + bias.expand(m.shape, dims=(1,))
    steps, spread = _each(stride, n, "a stride"), _each(dilation, n, "a dilation")
    pads = tuple((expr(p), expr(p)) for p in _widened(padding, n))
    if not transposed:
        return x.conv(weight, bias, stride=steps, padding=pads, dilation=spread, groups=groups)
    extra = _each(output_padding, n, "an output padding")
    return x.conv_transpose(weight, bias, stride=steps, padding=pads, output_padding=extra, dilation=spread, groups=groups)


N = TypeVar("N")


def _widened(values: Sequence[N], n: int) -> list[N]:
    """One value per spatial axis, from as many values or from one for all."""
    given = list(values)
    return given * n if len(given) == 1 else given


def _each(values: Sequence[int | Expr], n: int, what: str) -> tuple[int, ...]:
    return tuple(constant_int(v, f"{what} of a convolution") for v in _widened(values, n))


def convolution_backward(
    m: Importer, grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: object, stride: Sequence[int], padding: Sequence[int | Expr],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int | Expr], groups: int, mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """convolution_backward: gradients of input, weight and bias. The input's is the opposite convolution with the same
    weight; the weight's correlates input and gradient over the batch, with stride and dilation exchanged."""
    n = weight.rank - 2
    steps, spread = _each(stride, n, "a stride"), _each(dilation, n, "a dilation")
    pads = tuple(expr(p) for p in _widened(padding, n))
    of_input = of_weight = of_bias = None
    if mask[0]:
        if transposed:
            whole = grad.conv(weight, stride=steps, padding=[(p, p) for p in pads], dilation=spread, groups=groups)
            of_input = _fitted(m, whole, x.shape)
        else:
            of_input = _input_gradient(m, grad, x, weight, steps, pads, spread, groups)
    if mask[1]:
        image, error = (grad, x) if transposed else (x, grad)
        of_weight = _weight_gradient(m, image, error, weight, steps, pads, spread, groups)
    if mask[2]:
        of_bias = grad.sum((0, *range(2, grad.rank)))
    return of_input, of_weight, of_bias


def _input_gradient(
    m: Importer, grad: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, ...], pads: tuple[Expr, ...],
    dilation: tuple[int, ...], groups: int,
) -> Tensor:  # fmt: skip
    """The input's gradient. Rows at the end of the input that no window reached become output padding: at most stride - 1."""
    extra = []
    for i in range(len(stride)):
        kernel = constant_int(weight.shape[2 + i], "the kernel")
        reached = (grad.shape[2 + i] - 1) * stride[i] - 2 * pads[i] + dilation[i] * (kernel - 1) + 1
        extra.append(x.shape[2 + i] - reached)
    numbers = [e.as_int() for e in extra]
    constant = tuple(k if k is not None else stride[i] - 1 for i, k in enumerate(numbers))
    out = grad.conv_transpose(
        weight, stride=stride, padding=[(p, p) for p in pads], output_padding=constant, dilation=dilation, groups=groups
    )
    return _fitted(m, out, x.shape)


def _fitted(m: Importer, x: Tensor, shape: Sequence[Expr]) -> Tensor:
    """`x` cropped to `shape` on the spatial axes."""
    for axis in range(2, x.rank):
        if x.shape[axis] != shape[axis]:
            x = part(m, x, axis, ZERO, shape[axis])
    return x


def _weight_gradient(
    m: Importer, image: Tensor, error: Tensor, weight: Tensor, stride: tuple[int, ...], pads: tuple[Expr, ...],
    dilation: tuple[int, ...], groups: int,
) -> Tensor:  # fmt: skip
    """The weight's gradient: image (N, g*Ci, L..), error (N, g*Co, P..) -> (g*Co, Ci, k..). The batch becomes the
    contracted channels, the error is the kernel. A kernel's extent must be a number, so a symbolic P is computed by
    windows of the image."""
    n = weight.rank - 2
    inner = exact_div(image.shape[1], expr(groups))
    batch = image.shape[0]
    if inner is None:
        raise Refusal(f"{image.shape[1]} channels in {groups} groups")
    if all(s.as_int() is not None for s in error.shape[2:]):
        wide = image.reshape(batch, groups, inner, *image.shape[2:])
        swapped = wide.permute(2, 1, 0, *range(3, wide.rank)).reshape(inner, batch * groups, *image.shape[2:])
        kernel = error.permute(1, 0, *range(2, error.rank))
        spans = [(p - 1) * s + (k - 1) * d + 1 for p, s, k, d in zip(error.shape[2:], stride, weight.shape[2:], dilation)]
        seen, around = read_by_windows(swapped, [(p, p) for p in pads], spans)
        out = seen.conv(kernel, stride=dilation, padding=around, dilation=stride, groups=groups)
        return _fitted(m, out.permute(1, 0, *range(2, out.rank)), weight.shape)
    return _weight_gradient_by_windows(m, image, error, weight, stride, pads, dilation, groups, n)


def _weight_gradient_by_windows(
    m: Importer, image: Tensor, error: Tensor, weight: Tensor, stride: tuple[int, ...], pads: tuple[Expr, ...],
    dilation: tuple[int, ...], groups: int, n: int,
) -> Tensor:  # fmt: skip
    """The weight's gradient as a product of the windows of the image, a view, with the error."""
    batch, inner = image.shape[0], exact_div(image.shape[1], expr(groups))
    outer = exact_div(error.shape[1], expr(groups))
    assert inner is not None and outer is not None
    kernel = tuple(constant_int(s, "the kernel") for s in weight.shape[2:])
    spatial = tuple(error.shape[2:])
    padded = image.pad([(0, 0), (0, 0), *((p, p) for p in pads)])
    names = [expr(f"i{k}") for k in range(2 + 2 * n)]
    at = [names[0], names[1]]
    at += [names[2 + n + i] * stride[i] + names[2 + i] * dilation[i] for i in range(n)]
    windows = padded.view((batch, image.shape[1], *kernel, *spatial), map=at)
    windows = windows.reshape(batch, groups, inner, *kernel, *spatial)
    errors = error.reshape(batch, groups, outer, *spatial)
    k, p = "uvw"[:n], "xyz"[:n]
    out = m.graph.einsum(f"ngo{p},ngi{k}{p}->goi{k}", errors, windows)
    return out.reshape(weight.shape)


def trilinear(
    m: Importer, a: Tensor, b: Tensor, c: Tensor, new_a: Sequence[int], new_b: Sequence[int], new_c: Sequence[int],
    over: Sequence[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    """_trilinear: the product of three tensors, each with axes of size 1 inserted, summed over some axes: one einsum."""
    rank = a.rank + len(new_a)
    letters = "abcdefghijklmnop"[:rank]
    terms = ["".join(letters[k] for k in range(rank) if k not in new) for new in (new_a, new_b, new_c)]
    out = "".join(letters[k] for k in range(rank) if k not in over)
    return m.graph.einsum(f"{','.join(terms)}->{out}", a, b, c)


ROWS_OF_A_GROUP = 4
"""PyTorch is quicker on a CPU for groups of this mean number of rows, and for longer ones: it multiplies a group at once, our loop a row (64 rows
of 2048 numbers times 2048x1024: 0.52 of its speed; one row: 0.93)."""


def grouped_mm(
    m: Importer, a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: object = None
) -> Tensor:
    """_grouped_mm, and `transformers`' own for a CPU: groups of rows, each times a matrix of its own."""
    if m.leaves and all(v.device.type == "cpu" for v in m.results if isinstance(v, torch.Tensor)):
        rows, groups = a.shape[0].as_int(), b.shape[0].as_int()
        if rows is None or groups is None or rows >= ROWS_OF_A_GROUP * groups:
            raise Refusal(f"PyTorch is quicker for groups of {ROWS_OF_A_GROUP} rows or more")
    if offs is None or bias is not None or (a.rank, b.rank) != (2, 3):
        raise Refusal("grouped_mm of other operands than rows [T, K], matrices [G, K, N] and offs")
    return a.grouped_matmul(b, offs)


def cdist(m: Importer, a: Tensor, b: Tensor, p: float, mode: int | None = None) -> Tensor:
    """_cdist_forward: the p-norm of every difference of a row of `a` and a row of `b`."""
    if a.shape[-1] == ZERO:
        return m.graph.full(m.shape, 0, a.dtype)
    full = (*m.shape, a.shape[-1])
    rows = a.unsqueeze(a.rank - 1).expand(full)
    columns = b.unsqueeze(b.rank - 2).expand(full)
    return norm_over(rows - columns, float(p), (len(full) - 1,), False)


CONTRACTION: dict[str, Handler] = {
    "aten.mm.default": mm,
    "aten.bmm.default": mm,
    "aten._int_mm.default": int_mm,
    "aten.mv.default": mm,
    "aten.matmul.default": mm,
    "aten.dot.default": dot,
    "aten.vdot.default": dot,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": addmm,
    "aten.addmv.default": addmm,
    "aten.addbmm.default": addbmm,
    "aten._grouped_mm.default": grouped_mm,
    "transformers.grouped_mm_fallback.default": grouped_mm,
    "aten._trilinear.default": trilinear,
    "aten._cdist_forward.default": cdist,
    "aten._pdist_forward.default": distances_of_pairs,
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": convolution_backward,
}
"""Handlers of this file by overload."""
