"""Contractions: products summed over shared axes. Each lowers to one (attention: two) MUL -> REDUCE(SUM).

`acc_dtype` is the dtype of the sum (None: fp32 for 16-bit floats, else the operand's dtype); the result has
`out_dtype`, or the operands' dtype. `+ bias` happens in `acc_dtype`, before the one rounding.
"""

from __future__ import annotations

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr, floordiv, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    Operands,
    Operation,
    Site,
    UnequalSizes,
    broadcast,
    need,
    same_dtype,
    same_size,
    want,
    want_broadcast,
)
from tatami.frontend.operations.windows import filled, split_groups, windows

Pads = tuple[tuple[Expr, Expr], ...]


class Matmul(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `matmul`, `linear` and `grouped_matmul`: dtype of the sum, dtype of the result."""

    acc_dtype: DType | None = None
    out_dtype: DType | None = None


class Gemm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `gemm`: alpha * A @ B + beta * C, A and B transposed if `trans_a`, `trans_b`."""

    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    acc_dtype: DType | None = None
    out_dtype: DType | None = None


class Conv(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `conv`. Empty tuples mean stride and dilation 1, and no padding."""

    stride: tuple[int, ...] = ()
    padding: Pads = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    acc_dtype: DType | None = None
    out_dtype: DType | None = None


class ConvTranspose(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `conv_transpose`. Empty tuples mean stride and dilation 1, and no padding; `output_padding`: elements
    added at the end of each spatial axis."""

    stride: tuple[int, ...] = ()
    padding: Pads = ()
    output_padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    acc_dtype: DType | None = None
    out_dtype: DType | None = None


class Einsum(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `einsum`. `equation`: lower-case or upper-case letters, `...`, `->` optional."""

    equation: str
    acc_dtype: DType | None = None
    out_dtype: DType | None = None


class Attention(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `attention`. `scale` None is 1/sqrt(D). causal keeps key j <= query i + causal_offset; `window` also j > i
    + offset - window. `softcap` c: c * tanh(s / c)."""

    scale: float | None = None
    causal: bool = False
    causal_offset: Expr = expr(0)
    window: int | None = None
    softcap: float | None = None
    acc_dtype: DType | None = None
    out_dtype: DType | None = None


def operand_dtype(types: list[TensorType], out: DType | None, site: Site) -> DType:
    """The result dtype. The two factors have the same dtype; the addend has it too, or the result's. Raises E1006."""
    factors = same_dtype(types[:2], site)
    for t in types[2:]:
        if out is None or t.dtype != out:
            same_dtype((types[0], t), site)
    return out or factors


def _matmul(attrs: Matmul, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    a, b = need(operands)
    dtype = same_dtype((a, b), site)
    want(dtype != DType.bool, "matmul of bool", "cast the operands", site, "UnsupportedDType")
    want(bool(a.shape) and bool(b.shape), "matmul of rank 0", "multiply instead", site, "BroadcastMismatch")
    same_size(a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0], "matmul, contracted axis", site)
    batch = broadcast((a.shape[:-2], b.shape[:-2]), "matmul batch axes", site)
    rows = a.shape[-2:-1] if len(a.shape) > 1 else ()
    columns = b.shape[-1:] if len(b.shape) > 1 else ()
    return (TensorType(attrs.out_dtype or dtype, (*batch, *rows, *columns)),)


def _gemm(attrs: Gemm, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    a, b = types[:2]
    want(len(a.shape) == len(b.shape) == 2, "gemm of operands that are not matrices", "use matmul", site, "BroadcastMismatch")
    m, ka = reversed(a.shape) if attrs.trans_a else a.shape
    kb, n = reversed(b.shape) if attrs.trans_b else b.shape
    same_size(ka, kb, "gemm, contracted axis", site)
    dtype = operand_dtype(types, attrs.out_dtype, site)
    if len(types) > 2:
        why = f"gemm adds {shape_text(types[2].shape)} to {shape_text((m, n))}"
        want_broadcast(types[2].shape, (m, n), why, f"expand the addend to {shape_text((m, n))}", site)
    return (TensorType(dtype, (m, n)),)


def _linear(attrs: Matmul, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    x, w = types[:2]
    want(
        len(w.shape) == 2 and bool(x.shape),
        f"linear with weight {shape_text(w.shape)}",
        "give [out, in]",
        site,
        "BroadcastMismatch",
    )
    same_size(x.shape[-1], w.shape[1], "linear, contracted axis", site)
    if len(types) > 2:
        want(len(types[2].shape) == 1, "linear bias", "give [out]", site, "BroadcastMismatch")
        same_size(types[2].shape[0], w.shape[0], "linear bias", site)
    return (TensorType(operand_dtype(types, attrs.out_dtype, site), (*x.shape[:-1], w.shape[0])),)


def _grouped_matmul(attrs: Matmul, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, w, ends = need(operands)
    shapes = f"grouped_matmul of {shape_text(x.shape)}, {shape_text(w.shape)}, {shape_text(ends.shape)}"
    ranks = (len(x.shape), len(w.shape), len(ends.shape))
    want(ranks == (2, 3, 1), shapes, "give rows [T, K], weights [G, K, N], ends [G]", site, "BroadcastMismatch")
    same_size(x.shape[1], w.shape[1], "grouped_matmul, contracted axis", site)
    same_size(w.shape[0], ends.shape[0], "grouped_matmul, groups", site)
    want(ends.dtype.is_int or ends.dtype == DType.unknown, f"ends of {ends.dtype}", "give integers", site, "UnsupportedDType")
    return (TensorType(operand_dtype([x, w], attrs.out_dtype, site), (x.shape[0], w.shape[2])),)


def conv_padding(padding: Pads, rank: int) -> Pads:
    """(before, after) per spatial axis; without `padding`, zeros for `rank` axes."""
    return padding or ((expr(0), expr(0)),) * rank


def _conv(attrs: Conv, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    x, w = types[:2]
    n = len(w.shape) - 2
    lead = len(x.shape) - n
    want(
        n >= 1 and lead in (1, 2),
        f"conv of {shape_text(x.shape)} by {shape_text(w.shape)}",
        "give (N, C, L..) or (C, L..)",
        site,
        "BroadcastMismatch",
    )
    stride, dilation, padding = filled(attrs.stride, n), filled(attrs.dilation, n), conv_padding(attrs.padding, n)
    _check_window(len(stride) == len(dilation) == len(padding) == n, stride + dilation, n, site)
    split_groups(w.shape[0], attrs.groups, site)
    same_size(x.shape[lead - 1], w.shape[1] * attrs.groups, "conv input channels", site)
    kernel = kernel_sizes(w.shape[2:], site)
    _check_bias(types, w.shape[0], site)
    out = tuple(windows(x.shape[lead + i] + padding[i][0] + padding[i][1], kernel[i], stride[i], dilation[i]) for i in range(n))
    return (TensorType(operand_dtype(types, attrs.out_dtype, site), (*x.shape[: lead - 1], w.shape[0], *out)),)


def _check_window(complete: bool, positive: tuple[int, ...], n: int, site: Site) -> None:
    want(complete, "a window attribute has the wrong length", f"give {n} values, one per spatial axis", site)
    want(all(v > 0 for v in positive), "stride and dilation are positive", "give numbers >= 1", site)


def kernel_sizes(sizes: Shape, site: Site) -> tuple[int, ...]:
    """Kernel extents as numbers, since they decide which elements a window has. Raises TatamiError for a symbol."""
    out = []
    for s in sizes:
        value = s.as_int()
        want(value is not None, f"the kernel has extent {s}", "give kernel sizes that are numbers", site)
        out.append(value or 0)
    return tuple(out)


def _check_bias(types: list[TensorType], channels: Expr, site: Site) -> None:
    if len(types) > 2:
        want(
            len(types[2].shape) == 1,
            f"a bias of shape {shape_text(types[2].shape)}",
            "give [channels]",
            site,
            "BroadcastMismatch",
        )
        same_size(types[2].shape[0], channels, "bias", site)


def _conv_transpose(attrs: ConvTranspose, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    x, w = types[:2]
    n = len(w.shape) - 2
    lead = len(x.shape) - n
    want(
        n >= 1 and lead in (1, 2),
        f"conv_transpose of {shape_text(x.shape)} by {shape_text(w.shape)}",
        "give (N, C, L..) or (C, L..)",
        site,
        "BroadcastMismatch",
    )
    stride, dilation, padding = filled(attrs.stride, n), filled(attrs.dilation, n), conv_padding(attrs.padding, n)
    extra = attrs.output_padding or (0,) * n
    _check_window(len(stride) == len(dilation) == len(padding) == len(extra) == n, stride + dilation, n, site)
    split_groups(x.shape[lead - 1], attrs.groups, site)
    same_size(x.shape[lead - 1], w.shape[0], "conv_transpose input channels", site)
    kernel = kernel_sizes(w.shape[2:], site)
    _check_bias(types, w.shape[1] * attrs.groups, site)
    out = tuple(
        (x.shape[lead + i] - 1) * stride[i] - padding[i][0] - padding[i][1] + dilation[i] * (kernel[i] - 1) + extra[i] + 1
        for i in range(n)
    )
    return (TensorType(operand_dtype(types, attrs.out_dtype, site), (*x.shape[: lead - 1], w.shape[1] * attrs.groups, *out)),)


def einsum_terms(equation: str, ranks: list[int], site: Site) -> tuple[list[str], str]:
    """(input terms, output term) without `...`: its axes get capital Greek letters, right-aligned."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    want(len(terms) == len(ranks), f"{equation!r} has {len(terms)} terms for {len(ranks)} operands", "give one term each", site)
    spare = "ΑΒΓΔΕΖΗΘ"
    widest = 0
    for term, rank in zip(terms, ranks, strict=True):
        named = len(term.replace("...", ""))
        ok = named == rank if "..." not in term else named <= rank <= named + len(spare)
        want(ok, f"term {term!r} for an operand of rank {rank}", "give one letter per axis", site)
        letters = term.replace("...", "")
        want(letters == "" or (letters.isascii() and letters.isalpha()), f"term {term!r}", "use letters and '...'", site)
        widest = max(widest, rank - named)
    dots = spare[:widest]
    full = [
        t.replace("...", dots[widest - (rank - len(t.replace("...", ""))) :] if "..." in t else "")
        for t, rank in zip(terms, ranks, strict=True)
    ]
    if arrow:
        out = right.replace("...", dots)
    else:
        counts: dict[str, int] = {}
        for c in "".join(t.replace("...", "") for t in terms):
            counts[c] = counts.get(c, 0) + 1
        out = dots + "".join(sorted(c for c, k in counts.items() if k == 1))
    known = set("".join(full))
    want(len(set(out)) == len(out) and set(out) <= known, f"result term {right!r}", "name each operand axis at most once", site)
    return full, out


def einsum_sizes(terms: list[str], shapes: list[Shape], site: Site) -> dict[str, Expr]:
    """The size of every letter; size 1 yields on `...` axes."""
    sizes: dict[str, Expr] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            if letter not in sizes or (sizes[letter].as_int() == 1):
                sizes[letter] = size
            elif size.as_int() != 1:
                same_size(sizes[letter], size, f"einsum axis {letter}", site)
    return sizes


def _einsum(attrs: Einsum, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    terms, out = einsum_terms(attrs.equation, [len(t.shape) for t in types], site)
    sizes = einsum_sizes(terms, [t.shape for t in types], site)
    return (TensorType(attrs.out_dtype or same_dtype(types, site), tuple(sizes[c] for c in out)),)


def _attention(attrs: Attention, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    q, k, v = need(operands[:3])
    rank = len(q.shape)
    want(
        rank >= 2 and len(k.shape) == len(v.shape) == rank,
        f"attention of {shape_text(q.shape)}, {shape_text(k.shape)}, {shape_text(v.shape)}",
        "give (.., M, D), (.., N, D), (.., N, E) of one rank",
        site,
        "BroadcastMismatch",
    )
    same_size(q.shape[-1], k.shape[-1], "attention head size", site)
    same_size(k.shape[-2], v.shape[-2], "attention key and value length", site)
    for i in range(rank - 2):
        same_size(k.shape[i], v.shape[i], f"attention axis {i}", site)
        if q.shape[i] != k.shape[i]:
            per = floordiv(q.shape[i], k.shape[i])
            if i != rank - 3 or per * k.shape[i] != q.shape[i]:
                why = f"attention axis {i}: {q.shape[i]} query heads over {k.shape[i]} key heads"
                how = "make the number of query heads a multiple of the key heads"
                raise UnequalSizes(q.shape[i], k.shape[i], fail("AxisAlignmentMismatch", site.at, why, how))
    scores = (*q.shape[:-1], k.shape[-2])
    mask = operands[3] if len(operands) > 3 else None
    if mask is not None:
        why = f"attention mask {shape_text(mask.shape)} for scores {shape_text(scores)}"
        want_broadcast(mask.shape, scores, why, f"expand the mask to {shape_text(scores)}", site)
        want(
            mask.dtype in (DType.bool, DType.unknown, q.dtype),
            f"attention mask of {mask.dtype}",
            f"give bool (True keeps) or {q.dtype} (added)",
            site,
            "UnsupportedDType",
        )
    return (TensorType(attrs.out_dtype or same_dtype((q, k, v), site), (*q.shape[:-1], v.shape[-1])),)


CONTRACTION: tuple[Operation, ...] = (
    Operation("matmul", Matmul, 2, 2, _matmul, "numpy's matmul: rank 1 and batch axes included", True),
    Operation("gemm", Gemm, 2, 3, _gemm, "alpha * A @ B + beta * C; C broadcasts to [M, N]", True),
    Operation("linear", Matmul, 2, 3, _linear, "x @ weight^T + bias, weight [out, in]", True),
    Operation(
        "grouped_matmul", Matmul, 3, 3, _grouped_matmul, "row t of [T, K] @ weights[g], g the number of ends up to t", True
    ),
    Operation("conv", Conv, 2, 3, _conv, "cross-correlation of (N, C, L..) or (C, L..) with (Cout, C/g, k..)", True),
    Operation("conv_transpose", ConvTranspose, 2, 3, _conv_transpose, "gradient of conv; weight (C, Cout/g, k..)", True),
    Operation("einsum", Einsum, 1, -1, _einsum, "sum of products by letters", True),
    Operation("attention", Attention, 3, 4, _attention, "softmax(scale * Q K^T + mask) V over the last two axes", True),
)
"""Rows of the table: sums of products."""
