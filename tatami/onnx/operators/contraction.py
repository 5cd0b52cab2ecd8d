"""Matrix products, convolutions, einsum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tatami.core.algebra.order import greatest
from tatami.core.expr import Expr, ceildiv, expr, floordiv
from tatami.frontend.rewrites.integer_products import Integers, integer_conv, integer_matmul
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice
from tatami.onnx.values import Value

Pads = tuple[tuple[Expr, Expr], ...]
AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
"""Values of the attribute `auto_pad`."""


def window_padding(
    m: Importer, n: OnnxNode, sizes: tuple[Expr, ...], kernel: list[int], stride: list[int], dilation: list[int]
) -> Pads:
    """(padding before, after) each spatial axis, from `auto_pad` or `pads`."""
    rank = len(kernel)
    auto = choice(m, n, "auto_pad", "NOTSET", AUTO_PADS)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        out = []
        for i in range(rank):
            windows = ceildiv(sizes[i], expr(stride[i]))
            total = greatest(0, (windows - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - sizes[i])
            small, large = floordiv(total, expr(2)), total - floordiv(total, expr(2))
            out.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return tuple(out)
    pads = n.attr("pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
    return tuple((expr(pads[i]), expr(pads[i + rank])) for i in range(rank))


def conv_attributes(m: Importer, n: OnnxNode, x: str, weight: str) -> dict[str, Any]:
    """The frontend's attributes of a Conv, ConvInteger or QLinearConv."""
    kernel = [s.as_int() or 0 for s in m.shape(weight)[2:]]
    rank = len(kernel)
    stride, dilation = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
    return {
        "stride": stride,
        "dilation": dilation,
        "padding": window_padding(m, n, m.shape(x)[2:], kernel, stride, dilation),
        "groups": n.attr("group", 1),
    }


def _conv(m: Importer, n: OnnxNode) -> list[Value]:
    tensors = _with_kernel_sizes(m, n)
    return [m.result(m.one("conv", tensors, conv_attributes(m, n, tensors[0], tensors[1])))]


def _with_kernel_sizes(m: Importer, n: OnnxNode) -> list[str]:
    """The operands of a convolution; the attribute kernel_shape gives the sizes of a weight with open sizes."""
    x, weight, *rest = m.operands(n)
    shape = m.shape(weight)
    sizes = [expr(k) for k in n.attr("kernel_shape", [])]
    if len(sizes) == len(shape) - 2:
        weight = m.reshaped(
            weight, (*shape[:2], *(k if s.as_int() is None else s for s, k in zip(shape[2:], sizes, strict=True)))
        )
    return [x, weight, *rest]


def _conv_transpose(m: Importer, n: OnnxNode) -> list[Value]:
    tensors = _with_kernel_sizes(m, n)
    kernel = [s.as_int() or 0 for s in m.tensors[tensors[1]].shape[2:]]
    rank = len(kernel)
    stride, dilation = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
    extra = n.attr("output_padding", [0] * rank)
    sizes = m.tensors[tensors[0]].shape[2:]
    pads = [0] * (2 * rank) if n.attr("auto_pad", "NOTSET") == "VALID" else n.attr("pads", [0] * (2 * rank))
    padding: list[tuple[Expr, Expr]] = [(expr(pads[i]), expr(pads[i + rank])) for i in range(rank)]
    auto = choice(m, n, "auto_pad", "NOTSET", AUTO_PADS)
    wanted = n.attr("output_shape")
    if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(rank):
            size = expr(wanted[-rank:][i]) if wanted is not None else sizes[i] * stride[i]
            total = (sizes[i] - 1) * stride[i] + extra[i] + (kernel[i] - 1) * dilation[i] + 1 - size
            half = floordiv(total, expr(2))
            padding[i] = (half, total - half) if auto == "SAME_UPPER" else (total - half, half)
    attrs = {"stride": stride, "dilation": dilation, "padding": padding, "output_padding": extra, "groups": n.attr("group", 1)}
    return [m.result(m.emit("conv_transpose", tensors, attrs)[0])]


def _gemm(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(gemm(m, n))]


def gemm(m: Importer, n: OnnxNode) -> str:
    """alpha * A @ B + beta * C. For integers alpha and beta must be 1."""
    attrs = {
        "trans_a": bool(n.attr("transA", 0)),
        "trans_b": bool(n.attr("transB", 0)),
        "alpha": float(n.attr("alpha", 1.0)),
        "beta": float(n.attr("beta", 1.0)),
    }
    return m.one("gemm", m.operands(n), attrs)


def _matmul(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("matmul", m.operands(n)))]


def _einsum(m: Importer, n: OnnxNode) -> list[Value]:
    """Einsum; a letter that stands twice in one term reads the diagonal."""
    tensors = m.operands(n)
    left, arrow, right = n.attr("equation").replace(" ", "").partition("->")
    terms = left.split(",")
    for i, term in enumerate(terms):
        while len(term) == len(m.shape(tensors[i])) and len(set(term)) < len(term):
            term, tensors[i] = _diagonal(m, term, tensors[i])
        terms[i] = term
    if not arrow:
        right = "".join(sorted(c for c in set(left) - set(",.") if left.count(c) == 1))
        right = "..." + right if "..." in left else right
    return [m.result(m.one("einsum", tensors, {"equation": f"{','.join(terms)}->{right}"}))]


def _diagonal(m: Importer, term: str, tensor: str) -> tuple[str, str]:
    letter = next(c for c in term if term.count(c) > 1)
    first = term.index(letter)
    second = term.index(letter, first + 1)
    order = [i for i in range(len(term)) if i not in (first, second)] + [first, second]
    tensor = m.one("diagonal", [m.one("permute", [tensor], {"perm": order})])
    return "".join(term[i] for i in order[:-1]), tensor


def _matmul_integer(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(integer_matmul(m, Integers(m.operand(n, 0), m.operand(n, 2)), Integers(m.operand(n, 1), m.operand(n, 3))))]


def _conv_integer(m: Importer, n: OnnxNode) -> list[Value]:
    x, w = m.operand(n, 0), m.operand(n, 1)
    return [
        m.result(integer_conv(m, Integers(x, m.operand(n, 2)), Integers(w, m.operand(n, 3)), "", conv_attributes(m, n, x, w)))
    ]


CONTRACTION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "ConvInteger": _conv_integer,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    "Einsum": _einsum,
}
"""Handlers of this file by operator."""
