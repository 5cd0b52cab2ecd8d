"""Key padding in all forms that the attention operators document, as a term of the scores."""

from __future__ import annotations

from typing import NamedTuple

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention_core import LOWEST, position
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported

MASK_FILTER = -10000.0
"""Number added to the score of a padding key if the node gives no `mask_filter_value` (the operators' default)."""


class ScoreSizes(NamedTuple):
    """Sizes of the scores [B, H, S, T], and the number of keys that precede the new ones."""

    batch: Expr
    queries: Expr
    keys: Expr
    past: Expr


def filter_value(n: OnnxNode, dtype: DType) -> float:
    """The node's own `mask_filter_value`, limited to the dtype's range."""
    return max(float(n.attr("mask_filter_value", MASK_FILTER)), LOWEST.get(dtype, MASK_FILTER))


def padding_bias(m: Importer, n: OnnxNode, mask: Num, sizes: ScoreSizes, dtype: DType) -> Num:
    """The term that a mask adds to the scores [B, H, S, T]:

    [B, T], [B, S, T]      0 marks padding
    [B, 1, M, M]           a square of all positions, of which rows past.. and columns ..T are used
    [B]                    lengths: keys from there on are padding
    [2 * B]                ends, then starts: keys before the start are padding too
    [3 * B + 2]            lengths, then running sums of lengths, which add nothing
    """
    real = _real(m, mask, sizes)
    return real.where(Num(m, m.number(0, dtype)), filter_value(n, dtype))


def _real(m: Importer, mask: Num, sizes: ScoreSizes) -> Num:
    rank, (batch, queries, keys, past) = len(mask.shape), sizes
    if rank == 1:
        return _by_lengths(m, mask, batch, keys)
    kept = mask if mask.dtype == DType.bool else mask.fn("gt", 0)
    if rank == 2:
        return _of_all_keys(kept, 1, keys, past).unsqueeze(1, 2)
    if rank == 3:
        return _of_all_keys(kept, 2, keys, past).unsqueeze(1)
    if rank == 4:
        return kept.part(2, past, past + queries).part(3, 0, keys)
    raise unsupported(m, f"a mask of rank {rank}", "give lengths, or a mask of rank 2, 3 or 4")


def _of_all_keys(kept: Num, axis: int, keys: Expr, past: Expr) -> Num:
    """A mask of the new keys only, extended to a cache whose keys are all seen."""
    if kept.shape[axis] == keys or past == 0 or kept.shape[axis] + past != keys:
        return kept
    pads = [(past * 0, past * 0) for _ in kept.shape]
    pads[axis] = (past, past * 0)
    return kept.fn("pad", pads=tuple(pads), value=True)


def _by_lengths(m: Importer, lengths: Num, batch: Expr, keys: Expr) -> Num:
    place = position(m, keys)
    count = lengths.shape[0]
    if count == batch * 2:
        end, start = lengths.part(0, 0, batch), lengths.part(0, batch, batch * 2)
        return _row(place, "lt", end).fn("and", _row(place, "ge", start))
    ends = lengths.part(0, 0, batch) if count == batch * 3 + 2 else lengths
    return _row(place, "lt", ends)


def _row(place: Num, relation: str, bound: Num) -> Num:
    """The comparison of key positions with one bound per batch, [B, 1, 1, T]."""
    return place.fn(relation, bound.cast(DType.i64).unsqueeze(1, 2, 3))
