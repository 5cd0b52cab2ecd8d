"""Derivatives of gathers, scatters and sorts: a gather's is a scatter that adds, a scatter's a gather."""

from __future__ import annotations

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import product
from tatami.derivative.step import Cotangents, Rule, Step, masked, zeros_like
from tatami.frontend.graph_api.tensor import Tensor


def _take(s: Step) -> Cotangents:
    x, index, a = s[0], s[1], s.attrs
    axis = s.axis(a.axis, x.rank)
    first = list(range(axis, axis + index.rank))
    rest = [k for k in range(s.g.rank) if k not in first]
    g = s.g.permute([*first, *rest]) if axis else s.g
    shape = (x.shape[axis], *(n for k, n in enumerate(x.shape) if k != axis))
    zero = s.graph.one("full", shape=shape, value=0.0, dtype=x.dtype)
    out = zero.one("scatter_nd", index.unsqueeze(index.rank), g, op="add", bounds=a.bounds)
    return [out.permute([*range(1, axis + 1), 0, *range(axis + 1, x.rank)]) if axis else out, None]


def _gather(s: Step) -> Cotangents:
    a = s.attrs
    return [zeros_like(s[0]).one("scatter", s[1], s.g, axis=a.axis, op="add", bounds=a.bounds), None]


def _gather_nd(s: Step) -> Cotangents | None:
    if s.attrs.batch:
        return None
    return [zeros_like(s[0]).one("scatter_nd", s[1], s.g, op="add", bounds=s.attrs.bounds), None]


def _scattered(s: Step, gather: str, scatter: str) -> Cotangents:
    """Cotangents of the target and of the updates."""
    x, index, updates, a = s[0], s[1], s[2], s.attrs
    where = {"axis": a.axis, "bounds": a.bounds} if scatter == "scatter" else {"bounds": a.bounds}

    def read(t: Tensor) -> Tensor:
        return t.one(gather, index, **where)

    if a.op == "add":
        return [s.g, None, read(s.g)]
    if a.op == "set":
        of_x = s.g.one(scatter, index, zeros_like(updates), op="set", **where)
        if not s.needs(2):
            return [of_x, None, None]
        number = s.graph.one("iota", shape=(product(updates.shape),)).reshape(updates.shape)
        none = s.graph.one("full", shape=x.shape, value=-1, dtype=DType.i64)
        last = none.one(scatter, index, number, op="set", **where)  # the last update of an element stays
        return [of_x, None, masked(read(last) == number, read(s.g))]
    if a.op in ("max", "min"):
        own, theirs = (x == s.z).cast(x.dtype), (updates == read(s.z)).cast(x.dtype)
        share = s.g / own.one(scatter, index, theirs, op="add", **where)
        return [own * share, None, theirs * read(share)]
    raise fail(
        "UnsupportedModel",
        s.node.name,
        f"{s.node.op} with op={a.op} has no derivative here: a product of updates cannot be divided by one that is 0",
        "multiply by a tensor that a scatter with op=set or op=add has made",
    )


def _placed(s: Step) -> Cotangents:
    """sort, topk: each value's cotangent at the position it came from."""
    if s.cotangents[0] is None:
        return [None]
    return [zeros_like(s[0]).one("scatter", s.results[1], s.g, axis=s.attrs.axis, op="add")]


def _compress(s: Step) -> Cotangents:
    """Each kept slice's cotangent in its place, found by counting the kept ones before it."""
    x, condition, g = s[0], s[1], s.g
    axis = 0 if s.attrs.axis is None else s.axis(s.attrs.axis, x.rank)
    shape = (product(x.shape),) if s.attrs.axis is None else x.shape
    keeps = condition.cast(DType.i64)
    if condition.shape[0] != shape[axis]:
        keeps = keeps.pad([(0, shape[axis] - condition.shape[0])])
    rank = keeps.cumsum(0) - 1
    taken = g.one("take", rank, axis=axis, bounds="clamp")
    kept = (keeps != 0).expand(taken.shape, dims=[axis])
    return [masked(kept, taken).reshape(x.shape), None]


INDEXING: dict[str, Rule] = {
    "take": _take,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "scatter": lambda s: _scattered(s, "gather", "scatter"),
    "scatter_nd": lambda s: _scattered(s, "gather_nd", "scatter_nd"),
    "sort": _placed,
    "topk": _placed,
    "compress": _compress,
}
"""Rules of this family by operation."""
