"""Normalisations of a sum: a residual and a bias, embeddings, an image with its skip connection."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.normalization import layer_norm
from tatami.onnx.values import Value

SKIP_EPSILON = 1e-12
"""Epsilon of the residual and embedding normalisations if the node gives none (the operators' default)."""


def _skip_layer_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """Results: the normalised sum, its mean, its inverse deviation, the sum itself. The simplified form has no bias."""
    simplified = n.op == "SkipSimplifiedLayerNormalization"
    total = m.joined("add", m.operand(n, 0), m.operand(n, 1))
    scale, shift, bias = m.operand(n, 2), "", m.operand(n, 3)
    if not simplified:
        shift, bias = m.operand(n, 3), m.operand(n, 4)
    if bias:
        total = m.joined("add", total, bias)
    y, mean, inverse = layer_norm(
        m,
        "rms_norm" if simplified else "layer_norm",
        [total, scale, *([shift] if shift else [])],
        axis=-1,
        eps=float(n.attr("epsilon", SKIP_EPSILON)),
        statistics=DType.fp32 if n.wants(1) or n.wants(2) else None,
    )
    return [m.result(y), *(m.result(t) if t else Value(absent=True) for t in (mean, inverse)), m.result(total)]


def _embedded(m: Importer, n: OnnxNode, ids: str) -> str:
    """Word, position and segment embeddings of [B, T] added up; positions count from 0 if none are given."""
    _batch, length = m.shape(ids)
    total = Num(m, m.one("take", [m.operand(n, 2), ids], {"axis": 0}))
    table = m.operand(n, 3)
    if n.has(8):
        positions = m.one("take", [table, m.operand(n, 8)], {"axis": 0})
    else:
        place = m.one("iota", [], {"shape": (length,), "axis": 0})
        positions = m.one("take", [table, place], {"axis": 0})
    total = total + Num(m, positions)
    if n.has(1) and n.has(4):
        total = total + Num(m, m.one("take", [m.operand(n, 4), m.operand(n, 1)], {"axis": 0}))
    return total.tensor


def _embed_layer_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """Results: the normalised sum of embeddings, the number of words in each row of the mask, the sum."""
    ids = m.operand(n, 0)
    total = _embedded(m, n, ids)
    y, _, _ = layer_norm(
        m, "layer_norm", [total, m.operand(n, 5), m.operand(n, 6)], axis=-1, eps=float(n.attr("epsilon", SKIP_EPSILON))
    )
    return [m.result(y), m.result(word_counts(m, ids, m.operand(n, 7))), m.result(total)]


def word_counts(m: Importer, ids: str, mask: str) -> str:
    """Number of ones in each row of the mask; 0 without a mask."""
    if not mask:
        return m.one("full", [], {"shape": (m.shape(ids)[0],), "value": 0, "dtype": DType.i32})
    ones = Num(m, mask).fn("eq", 1).cast(DType.i32)
    return ones.fn("reduce_sum", axes=(1,), acc_dtype=DType.i32).tensor


def _group_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """Images are [N, H, W, C] or, with channels_last 0, [N, C, H, W]. SkipGroupNorm's second result is the sum."""
    last = bool(n.attr("channels_last", 1))
    x = m.operand(n, 0)
    rank = len(m.shape(x))
    if n.op == "SkipGroupNorm":
        x = m.joined("add", x, _beside(m, m.operand(n, 3), rank, last))
        if n.has(4):
            x = m.joined("add", x, _along_channels(m, m.operand(n, 4), rank, last))
    planes = m.one("permute", [x], {"perm": (0, rank - 1, *range(1, rank - 1))}) if last else x
    scale, shift = m.operand(n, 1), m.operand(n, 2)
    wide = m.cast(planes, m.dtype(scale))
    y = m.one("group_norm", [wide, scale, shift], {"groups": n.attr("groups"), "eps": float(n.attr("epsilon", 1e-5))})
    if n.attr("activation", 0):
        y = m.one("silu", [y])
    y = m.cast(y, m.dtype(x))
    if last:
        y = m.one("permute", [y], {"perm": (0, *range(2, rank), 1)})
    return [m.result(y), m.result(x)]


def _along_channels(m: Importer, t: str, rank: int, last: bool) -> str:
    return t if last else m.one("unsqueeze", [t], {"axes": tuple(range(1, rank - 1))})


def _beside(m: Importer, skip: str, rank: int, last: bool) -> str:
    """A skip tensor in x's rank: unchanged, or [N, C] with axes of size 1 for the image."""
    if len(m.shape(skip)) == rank:
        return skip
    inner = range(1, rank - 1) if last else range(2, rank)
    return m.one("unsqueeze", [skip], {"axes": tuple(inner)})


def simplified_layer_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """RMS normalisation, and the inverse of the root mean square. ONNX Runtime writes it in ONNX's own domain."""
    x, scale = m.operand(n, 0), m.operand(n, 1)
    stash = DType.fp64 if m.dtype(x) == DType.fp64 else DType.fp32
    wide = m.cast(x, m.dtype(scale)) if m.dtype(x) != m.dtype(scale) else x
    y, _, inverse = layer_norm(
        m,
        "rms_norm",
        [wide, scale],
        axis=n.attr("axis", -1),
        eps=float(n.attr("epsilon", 1e-5)),
        statistics=stash if n.wants(1) else None,
    )
    return [m.result(y), *([m.result(inverse)] if inverse else [])]


def _branchwise_rms_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """Each branch of H values divided by its own root mean square, in fp32. x is [.., C, H], or [.., C * H] with the number of
    branches."""
    x = Num(m, m.operand(n, 0))
    shape, to = x.shape, x.dtype
    branches = n.attr("num_branches", 0)
    wide = x.cast(DType.fp32)
    if branches:
        wide = wide.reshape(*shape[:-1], branches, shape[-1] // branches)
    y = Num(m, m.one("rms_norm", [wide.tensor], {"axis": len(wide.shape) - 1, "eps": float(n.attr("epsilon", 1e-5))}))
    if n.has(1):
        scale = Num(m, m.operand(n, 1)).cast(DType.fp32)
        if len(scale.shape) == 1 and scale.shape[0] != wide.shape[-1]:
            scale = scale.reshape(*wide.shape[-2:])
        y = y * scale
    return [m.result(y.cast(to).reshape(*shape).tensor)]


def _gated_rms_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """Groups of C values divided by their root mean square, times scale and silu or sigmoid of the gate; all in fp32."""
    x, scale, gate = (Num(m, m.operand(n, i)) for i in range(3))
    shape, to = x.shape, x.dtype
    count = scale.shape[0]
    wide = x.cast(DType.fp32).reshape(*shape[:-1], shape[-1] // count, count)
    attrs = {"axis": len(shape), "eps": float(n.attr("epsilon", 1e-5))}
    y = Num(m, m.one("rms_norm", [wide.tensor, scale.cast(DType.fp32).tensor], attrs)).reshape(*shape)
    act = "sigmoid" if n.attr("activation", "silu") == "sigmoid" else "silu"
    return [m.result((y * gate.cast(DType.fp32).fn(act)).cast(to).tensor)]


NORMALIZATION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_layer_norm,
    "EmbedLayerNormalization": _embed_layer_norm,
    "GroupNorm": _group_norm,
    "SkipGroupNorm": _group_norm,
    "BranchwiseRMSNorm": _branchwise_rms_norm,
    "GatedRMSNorm": _gated_rms_norm,
}
"""Handlers of this file by operator."""
