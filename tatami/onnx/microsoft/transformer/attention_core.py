"""The attention that all operators of the family are built on: heads split, one mask, one attention, heads joined.

Masks of ONNX Runtime add a large negative number to the scores of padding keys, so a query whose keys are all padding attends
to them equally; causal masks and windows are absolute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.operands import unsupported

LOWEST = {DType.fp16: -65504.0, DType.bf16: -3.3895313892515355e38, DType.fp32: -3.4028234663852886e38}
"""The smallest finite number of each dtype."""


@dataclass(frozen=True)
class Attention:
    """Queries [B, H, S, D], keys [B, G, T, D] and values [B, G, T, E], with masks and terms of the scores."""

    q: Num
    k: Num
    v: Num
    scale: float = 0.0
    """Factor of the scores; 0 (default) stands for 1 / sqrt(D)."""
    bias: Num | None = None
    """Term added to the scores, which broadcasts to [B, H, S, T]; None without."""
    keep: Num | None = None
    """False for keys that are not seen; broadcasts to [B, H, S, T]. None if all are."""
    causal: Expr | None = None
    """Number added to the query's own position to give the last key it sees; None without a causal mask."""
    softcap: float = 0.0
    """Limit c of the scaled scores, c * tanh(s / c), before any term is added; 0 (default) for none."""
    sink: Num | None = None
    """[H]: a score per head that takes part in the softmax and has no value; None without."""

    @property
    def scores_shape(self) -> Shape:
        """[B, H, S, T]: the shape of the scores."""
        return (*self.q.shape[:-1], self.k.shape[-2])


def split_heads(x: Num, heads: int) -> Num:
    """[B, S, H * D] as [B, H, S, D]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, floordiv(width, expr(heads))).permute(0, 2, 1, 3)


def join_heads(x: Num) -> Num:
    """[B, H, S, D] as [B, S, H * D]."""
    batch, heads, length, width = x.shape
    return x.permute(0, 2, 1, 3).reshape(batch, length, heads * width)


def columns(x: Num, *widths: Expr | int) -> list[Num]:
    """Consecutive parts of the last axis, of these widths."""
    axis, at, out = len(x.shape) - 1, expr(0), []
    for width in widths:
        out.append(x.part(axis, at, at + width))
        at = at + width
    return out


def fitted(x: Num, shape: Shape) -> Num:
    """A mask with the sizes of `shape`, from the last axis on, except where it is 1: sizes of other names are assumed equal."""
    aligned = shape[len(shape) - len(x.shape) :]
    wanted = tuple(s if s == ONE else t for s, t in zip(x.shape, aligned, strict=True))
    return x if x.shape == wanted else x.reshape(*wanted)


def position(m: Importer, length: Expr, start: Expr | int = 0) -> Num:
    """start, start + 1, …: `length` numbers of i64."""
    return Num(m, m.one("iota", [], {"shape": (length,), "axis": 0, "start": start}))


def causal_keep(m: Importer, a: Attention) -> Num:
    """[S, T]: True for keys up to the query's own position."""
    assert a.causal is not None
    queries, keys = a.scores_shape[-2:]
    return position(m, keys).fn("le", position(m, queries, a.causal).unsqueeze(1))


def _mask(m: Importer, a: Attention) -> Num | None:
    """Bias and keep as one mask of the attention operation; None if there is neither."""
    bias, keep = a.bias, a.keep
    if bias is not None:
        bias = fitted(bias, a.scores_shape).cast(a.q.dtype)
    if keep is not None:
        keep = fitted(keep, a.scores_shape)
        if bias is None:
            return keep
        return keep.where(bias, float("-inf"))
    return bias


def _with_sink(m: Importer, a: Attention, sink: Num) -> Attention:
    """The sink as one more key: its score is the sink, its value 0."""
    shape = a.scores_shape
    to = a.q.dtype
    keep = a.keep
    if a.causal is not None:
        seen = causal_keep(m, a)
        keep = seen if keep is None else keep.fn("and", seen)
    mask = _mask(m, replace(a, keep=keep))
    if mask is None:
        mask = Num(m, m.number(0, to))
    elif mask.dtype == DType.bool:
        mask = mask.where(Num(m, m.number(0, to)), float("-inf"))
    mask = mask.fn("expand", shape=shape) if mask.shape != shape else mask
    heads = shape[1]
    column = sink.cast(to).reshape(1, heads, 1, 1).fn("expand", shape=(*shape[:3], 1))
    bias = Num(m, m.one("concat", [mask.tensor, column.tensor], {"axis": 3}))
    pads = ((expr(0), expr(0)), (expr(0), expr(0)), (expr(0), expr(1)), (expr(0), expr(0)))
    k, v = a.k.fn("pad", pads=pads), a.v.fn("pad", pads=pads)
    return Attention(a.q, k, v, a.scale, bias, softcap=a.softcap)


def attend(m: Importer, a: Attention) -> Num:
    """softmax(scale * q k' + mask) v as [B, H, S, E]."""
    if a.sink is not None:
        a = _with_sink(m, a, a.sink)
    attrs: dict[str, object] = {}
    if a.scale:
        attrs["scale"] = float(a.scale)
    if a.softcap:
        attrs["softcap"] = float(a.softcap)
    keep = a.keep
    if a.causal is not None:
        if keep is None:
            attrs |= {"causal": True, "causal_offset": a.causal}
        else:
            keep = keep.fn("and", causal_keep(m, a))
    mask = _mask(m, Attention(a.q, a.k, a.v, bias=a.bias, keep=keep))
    operands = [a.q.tensor, a.k.tensor, a.v.tensor, *([mask.tensor] if mask is not None else [])]
    return Num(m, m.one("attention", operands, attrs))


def scores(m: Importer, a: Attention, hidden: float | None = None) -> Num:
    """The scores themselves, [B, H, S, T], for results that contain them; `hidden`, or the smallest finite number, for keys
    that are not seen."""
    if a.sink is not None:
        raise unsupported(m, "scores as a result, in addition to a sink of the softmax", "leave one of them out")
    batch, heads, _, width = a.q.shape
    keys = a.k
    if keys.shape[1] != heads:
        group = floordiv(heads, keys.shape[1])
        keys = keys.unsqueeze(2).fn("expand", shape=(batch, keys.shape[1], group, *keys.shape[2:]))
        keys = keys.reshape(batch, heads, *a.k.shape[2:])
    number = width.as_int()
    if not a.scale and number is None:
        raise unsupported(m, "scores of heads of open size", "give the operator a scale")
    out = Num(m, m.one("matmul", [a.q.tensor, keys.permute(0, 1, 3, 2).tensor])) * (a.scale or float(number or 1) ** -0.5)
    if a.softcap:
        out = (out / a.softcap).fn("tanh") * a.softcap
    if a.bias is not None:
        out = out + fitted(a.bias, a.scores_shape).cast(out.dtype)
    keep = a.keep if a.keep is None else fitted(a.keep, a.scores_shape)
    if a.causal is not None:
        seen = causal_keep(m, a)
        keep = seen if keep is None else keep.fn("and", seen)
    return out if keep is None else keep.where(out, LOWEST[out.dtype] if hidden is None else hidden)


def extended(m: Importer, past: Num | None, new: Num, at: Num | None = None, length: Expr | None = None) -> Num:
    """A cache [B, H, P, D] followed by the new rows [B, H, S, D]. With `at` (rank 0, or one per batch) the new rows replace
    those from there on in a cache of `length` rows."""
    if past is None:
        return new
    if at is None:
        return Num(m, m.one("concat", [past.tensor, new.cast(past.dtype).tensor], {"axis": 2}))
    if length is not None and length != past.shape[2]:
        past = past.fn("pad", pads=((expr(0),) * 2, (expr(0),) * 2, (expr(0), length - past.shape[2]), (expr(0),) * 2))
    row = Num(m, m.one("iota", [], {"shape": new.shape, "axis": 2}))
    first = at.cast(DType.i64)
    row = row + (first.unsqueeze(1, 2, 3) if first.shape else first)
    return Num(m, m.one("scatter", [past.tensor, row.tensor, new.cast(past.dtype).tensor], {"axis": 2}))


def of_beams(m: Importer, cache: Num, source: Num, filled: Num | None) -> Num:
    """A cache [B * W, H, M, D] as the beams read it: `source` [B, W, M] gives, for each row before number `filled` (for all
    but the last row without it), the beam whose key is read."""
    rows, heads, keys, width = cache.shape
    entries, beams, _ = source.shape
    source = source.cast(DType.i64)
    if source.shape[2] != keys:
        source = source.part(2, 0, keys)
    number = Num(m, m.one("size", [], {"value": beams}))
    place = (source + position(m, entries).unsqueeze(1, 2) * number).reshape(rows, keys)
    own = Num(m, m.one("iota", [], {"shape": (rows, keys), "axis": 0}))
    new = filled if filled is not None else Num(m, m.one("size", [], {"value": keys - 1}))
    place = position(m, keys).fn("lt", new).where(place, own)
    at = place.unsqueeze(1, 3).fn("expand", shape=(rows, heads, keys, width))
    return Num(m, m.one("gather", [cache.tensor, at.tensor], {"axis": 0}))
