"""Numbers of axes that the operands of an operator may have, by its documentation. Handlers rely on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tatami.core.diagnostic import fail
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value

Handler: TypeAlias = Callable[[Importer, OnnxNode], list[Value]]
MOST = 99
"""Stands for any number of axes as an upper bound."""

RANKS: dict[str, str] = {
    "Attention": "3 2 1 1-4 5 4 0-1",
    "BiasSplitGelu": "1+ 1",
    "BranchwiseRMSNorm": "1+ 1-2",
    "CDist": "2 2",
    "CausalConvWithState": "3+ 3 1 3+",
    "ComplexMul": "1+ 1+",
    "ComplexMulConj": "1+ 1+",
    "CropAndResize": "4 2 1 1",
    "DecoderAttention": "3 3 2 2 1 2 4 4",
    "DecoderMaskedMultiHeadAttention": "3 3-4 3-4 2 4 4 4 0-1 0-1 3 1",
    "DecoderMaskedSelfAttention": "3 2 1 2 5 4 0-1",
    "DynamicQuantizeLSTM": "3 3 3 2 1 3 3 2 1-2 1-2 1-2 1-2",
    "DynamicQuantizeMatMul": "1+ 1+ 0-1 0-1 1",
    "EmbedLayerNormalization": "2 2 2 2 2 1 1 2 2",
    "EngramGate": "4 4 3 1-2 1-2 1-2",
    "GatedDeltaNet": "2-4 3-4 3-4 1 2-4 2-3 4 1 1-2",
    "GatedRMSNorm": "1+ 1 1+",
    "GatedRelativePositionBias": "2-3 1 4 2 1 4 2",
    "GatherBlockQuantized": "1+ - 1+ 1+",
    "GemmaRotaryEmbedding": "3 4 4 4 4",
    "GridSample": "4 4",
    "GroupNorm": "3+ 1 1",
    "GroupQueryAttention": "3 3 3 4 4 1-2 0-1 2 2 2 4 1 - - 1 1 1",
    "HyperConnectionPostMix": "1+ 1+ 1+ 2+",
    "HyperConnectionPreMix": "1+ 1+",
    "Inverse": "2+",
    "Irfft": "2+",
    "LinearAttention": "3 3 3 4 3 3",
    "LinearAttentionGate": "1+ 1 1 1+",
    "MRotaryEmbedding": "3-4 3 2 2",
    "MatMulBnb4": "1+ 1 1",
    "MatMulIntegerToFloat": "1+ 1+ 0-2 0-1 0-2 0-1 1",
    "MatMulNBits": "1+ 1+ 1-2 1-2 1 1",
    "MoE": "2-3 2 3 2 3 2 3 2",
    "MultiHeadAttention": "3-5 3-5 3-4 1 1-3 4 4 4 0-1 3",
    "NGramRepeatBlock": "2 2",
    "PackedAttention": "2 2 1 2 1 4",
    "PackedMultiHeadAttention": "2-4 2 2 1 2 1 4",
    "QAttention": "3 2 1 0-1 0-1 1-3 0-1 0-1 5",
    "QEmbedLayerNormalization": "2 2 2 2 2 1 1 2",
    "QGemm": "2 0-1 0-1 2 0-1 0-1 0-2 0-1 0-1",
    "QLinearAveragePool": "3+",
    "QLinearConcat": "0-1 0-1 1+ 0-1 0-1",
    "QLinearConv": "3+ 0-1 0-1 3+ 0-1 0-1 0-1 0-1 1",
    "QLinearGlobalAveragePool": "3+",
    "QLinearReduceMean": "1+ 0-1 0-1 0-1 0-1",
    "QMoE": "2-3 2 3 2-3 2 3 2-3 2 3 2-3 2 2-3 2-3 2-3 2",
    "ReduceSumInteger": "1+",
    "RelativePositionBias": "2 0-1 0-1",
    "RemovePadding": "2+ 1",
    "RestorePadding": "1+ 2",
    "Rfft": "1+",
    "RotaryEmbedding": "3-4 1-2 2 2",
    "SkipGroupNorm": "3+ 1 1 2+ 1",
    "SkipLayerNormalization": "1+ 1+ 1 1 1",
    "SkipSimplifiedLayerNormalization": "1+ 1+ 1 1",
    "SwiGLU": "1+ 1+",
    "UnfoldTensor": "1+",
    "Unique": "1",
}
"""Ranks of each operator's operands, one word per operand: a number, a range, n+ for at least n, - for any."""


def with_ranks(op: str, handler: Handler) -> Handler:
    """The handler preceded by a check of its operands' numbers of axes."""
    if op not in RANKS:
        return handler
    bounds = [_bounds(word) for word in RANKS[op].split()]

    def checked(m: Importer, n: OnnxNode) -> list[Value]:
        for i, (least, most) in enumerate(bounds):
            rank = len(m.shape(m.operand(n, i))) if n.has(i) else least
            if not least <= rank <= most:
                wanted = f"{least}" if least == most else f"at least {least}" if most == MOST else f"{least} to {most}"
                raise fail(
                    "InvalidDocument",
                    m.site,
                    f"operand {i} of {n.op} has {rank} axes, not {wanted}",
                    "reshape it before the node",
                )
        return handler(m, n)

    return checked


def _bounds(word: str) -> tuple[int, int]:
    if word == "-":
        return 0, MOST
    if word.endswith("+"):
        return int(word[:-1]), MOST
    least, _, most = word.partition("-")
    return int(least), int(most or least)
