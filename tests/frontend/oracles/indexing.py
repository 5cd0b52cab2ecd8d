"""Places that tensors hold: gathers, scatters with duplicates, masks, counted sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tatami.core.numbers.trees import node_table
from tests.frontend.oracles.oracle import Oracle, oracle
from tests.frontend.oracles.reduction import drawn


@oracle
def creation(o: Oracle) -> None:
    x = drawn((4, 5))
    t = o.given(x, ("A", "B"))
    g: Any = o.g  # dtypes by name
    o.same("zeros", t + g.zeros(("A", "B")), x)
    o.same("ones", t * g.ones(("A", "B")), x)
    o.same("full", t + g.full(("A", "B"), 0.5, "fp32"), x + np.float32(0.5))
    o.same("eye", g.eye("A", "B") + t, np.eye(4, 5) + x)
    o.same("eye below", g.eye(4, 5, -1, "i32"), np.eye(4, 5, -1, dtype=np.int32))
    o.same("eye of bool", g.eye(3, dtype="bool"), np.eye(3, dtype=bool))
    o.same("arange", g.arange("A*B").reshape("A", "B"), np.arange(20).reshape(4, 5))
    o.same("arange from", g.arange(6, "i32", start=3, step=-2), np.arange(3, -9, -2, dtype=np.int32))
    o.same("arange of floats", g.arange("B", "fp32", start=0.5, step=0.25), np.arange(5, dtype=np.float32) * 0.25 + 0.5)
    o.same("iota", g.iota((3, "B"), -1), np.broadcast_to(np.arange(5), (3, 5)))
    o.same("size", g.size_of("A*B + 1"), np.int64(21))
    o.same("mask of a triangle", g.where(g.iota(("A", "B"), 0) >= g.iota(("A", "B"), 1), t, 0), np.tril(x))


@oracle
def trees(o: Oracle) -> None:
    """Two stumps: x0 <= 0.5, NaN too; x2 <= -0.25."""
    x = drawn((40, 3))
    x[::7, 0] = np.nan
    splits, is_nan_yes = np.array([0.5, 0, 0, -0.25, 0, 0], np.float32), np.array([True, *[False] * 5])
    no, yes, leaf = np.array([2, 1, 2, 5, 4, 5]), np.array([1, 1, 2, 4, 4, 5]), np.array([-1, 0, 1, -1, 2, 3])
    nodes = node_table(splits, np.array([0, 0, 0, 2, 0, 0]), is_nan_yes, no, yes, leaf)
    values = np.array([[1], [2], [3], [4]], np.float32)
    tables = [o.g.constant(t) for t in (nodes, np.array([0, 3], np.int32), np.array([0, 1, 1, 0], np.int32), values)]
    first, second = ~(x[:, 0] > 0.5), x[:, 2] <= -0.25
    want = np.stack([first * 1.0 + ~second * 4, ~first * 2 + second * 3.0], 1).astype(np.float32)
    for label, t in (("fixed", o.given(x)), ("open", o.given(x, ("A", 3)))):
        o.same(f"trees, {label}", t.op("tree_ensemble", *tables, outputs=2, features=3), want)


@oracle
def gathers(o: Oracle) -> None:
    x = drawn((4, 6, 5))
    for label, t in (("fixed", o.given(x)), ("open", o.given(x, ("A", "B", "C")))):
        for axis in (0, 1, 2, -1):
            n = x.shape[axis]
            shape = list(x.shape)
            shape[axis] = 3
            index = np.random.default_rng(axis + 1).integers(0, n, shape)
            want = np.take_along_axis(x, index, axis)
            given = o.given(index, None if label == "fixed" else [{4: "A", 6: "B", 5: "C"}.get(s, s) for s in shape])
            o.same(f"gather {axis} {label}", t.gather(axis, given), want)
            o.same(f"gather from the end {axis} {label}", t.gather(axis, given - n), want)
            rows = np.random.default_rng(9).integers(-n, n, (2, 3))
            o.same(f"take {axis} {label}", t.take(o.given(rows), axis), np.take(x, rows, axis))
            o.same(f"take one {axis} {label}", t.take(o.given(np.int32(n - 1)), axis), np.take(x, n - 1, axis))
        far = np.array([-9, -1, 0, 3, 4, 99])
        o.same(f"clamp {label}", t.take(o.given(far), 0, "clamp"), x[np.clip(far, 0, 3)])
        inside = ((far >= 0) & (far < 4))[:, None, None]
        o.same(f"zero {label}", t.take(o.given(far), 0, "zero"), np.where(inside, x[np.clip(far, 0, 3)], 0))
        pairs = np.array([[[0, 5], [-1, 2]], [[3, 0], [2, -6]]])
        o.same(f"gather_nd {label}", t.gather_nd(o.given(pairs)), x[pairs[..., 0], pairs[..., 1]])
    index = np.array([[[1], [3]], [[0], [2]], [[5], [5]], [[2], [4]]])
    o.same("gather_nd of a batch", o.given(x).gather_nd(o.given(index), batch=1), np.take_along_axis(x, index, 1))
    for dtype in (np.uint8, np.int16, np.uint32):
        o.same(f"index of {np.dtype(dtype)}", o.given(x).take(o.given(np.array([3, 1], dtype))), x[[3, 1]])
    o.same(
        "embedding",
        o.given(x[0], ("V", 5)).take(o.given(np.array([[1, 2, 3], [0, 0, 5]]), ("N", "T"))),
        x[0][[[1, 2, 3], [0, 0, 5]]],
    )
    o.same("gather of nothing", o.given(x).take(o.given(np.zeros((0,), np.int64), ("NONE",))), x[:0])


@oracle
def scatters(o: Oracle) -> None:
    """Duplicates: the last stays, or all are added, multiplied, compared."""
    reduces = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    for dtype in (np.float32, np.int32, np.float16):
        x = drawn((5, 7), dtype, 1)
        for axis, shape in ((0, (3, 7)), (1, (5, 4)), (-1, (4, 12)), (0, (9, 6))):
            index = np.random.default_rng(axis + 1).integers(0, x.shape[axis], shape)
            updates = drawn(shape, dtype, 2)
            t, i, u = o.given(x), o.given(index), o.given(updates)
            what = f"{axis} {shape} {np.dtype(dtype)}"
            for op, reduce in reduces.items():
                want = torch.from_numpy(x).scatter_reduce(axis, torch.from_numpy(index), torch.from_numpy(updates), reduce)
                o.same(f"scatter {op} {what}", t.scatter(axis, i, u, op), want, 8.0)
            want = x.copy()
            for place in np.ndindex(*shape):
                to = list(place)
                to[axis] = index[place]
                want[tuple(to)] = updates[place]
            o.same(f"scatter set {what}", t.scatter(axis, i - x.shape[axis], u), want)
    x, rows, updates = drawn((5, 4)), np.array([[3], [0], [3]]), drawn((3, 4), seed=2)
    t, i, u = o.given(x, ("A", "B")), o.given(rows), o.given(updates, (3, "B"))
    plus = x.copy()
    np.add.at(plus, rows[:, 0], updates)
    last = x.copy()
    for row, update in zip(rows[:, 0], updates):
        last[row] = update
    o.same("scatter_nd add", t.scatter_nd(i, u, "add"), plus)
    o.same("scatter_nd set", t.scatter_nd(i, u), last)
    points = np.array([[0, 0], [4, 3], [0, 0]])
    plus = x.copy()
    np.add.at(plus, tuple(points.T), [1, 2, 4])
    o.same(
        "scatter_nd of points", o.given(x).scatter_nd(o.given(points), o.given(np.array([1, 2, 4], np.float32)), "add"), plus
    )
    kept = x.copy()
    kept[2] = updates[1]
    far = np.array([[-9], [2], [7]])
    o.same("scatter_nd of places outside", t.scatter_nd(o.given(far), u, bounds="zero"), kept)


@oracle
def masks_and_counts(o: Oracle) -> None:
    labels = np.array([[0, 3, -1], [2, 9, 1]])
    hot = np.eye(4, dtype=np.float32)[np.clip(labels, -4, 3)] * (np.abs(labels + 0.5) < 5)[..., None] * (labels < 4)[..., None]
    o.same("one_hot", o.given(labels).one_hot(4), hot)
    o.same("one_hot first", o.given(labels, ("A", "B")).one_hot("A + 2", 0, "i32"), hot.transpose(2, 0, 1).astype(np.int32))
    o.same(
        "one_hot values",
        o.given(labels).one("one_hot", o.given(np.array([-1, 5], np.float32)), depth=4, axis=1),
        np.where(hot, 5, -1).transpose(0, 2, 1),
    )
    x = drawn((4, 6), np.int32, 4)
    o.same("nonzero", o.given(x).nonzero(), np.array(np.nonzero(x)))
    count = o.given(np.array(3, np.int32)).as_size()
    o.same("extent", o.given(x[0]).unsqueeze(0).expand((count, 6)), np.broadcast_to(x[0], (3, 6)))
    rows, columns = o.g.sizes_of(*(o.given(np.array(k, np.int32)) for k in (2, 3)))
    o.same("extents", o.given(x[0]).unsqueeze((0, 1)).expand((rows, columns, 6)), np.broadcast_to(x[0], (2, 3, 6)))
    keep = np.array([True, False, True, True])
    o.same("compress", o.given(x).compress(o.given(keep), 0), x[keep])
    o.same("compress of the line", o.given(x).compress(o.given(keep)), x.ravel()[:4][keep])
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    o.same("unique", o.given(x).op("unique", size="U"), (values, first, inverse.reshape(-1), counts))
    lengths = np.array([1, 4, 0, 3, 2, 4])
    want = x.copy()
    for column, n in enumerate(lengths):
        want[:n, column] = x[:n, column][::-1]
    o.same("reverse_sequence", o.given(x).reverse_sequence(o.given(lengths)), want)
    boxes = np.array(
        [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], np.float32
    )
    scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], np.float32)
    kept = o.given(boxes).one("non_max_suppression", o.given(scores), size="K", max_per_class=3, iou_threshold=0.5)
    o.same("non_max_suppression", kept, np.array([[0, 0, 3], [0, 0, 0], [0, 0, 5]], np.int64))


@oracle
def resizes(o: Oracle) -> None:
    import torch.nn.functional as F

    for shape, to in (
        ((1, 2, 5, 7), (1, 2, 8, 10)),
        ((2, 1, 9, 6), (2, 1, 4, 3)),
        ((1, 1, 3, 3), (1, 1, 1, 5)),
    ):
        x = drawn(shape)
        t, p = o.given(x), torch.from_numpy(x).double()
        size = to[2:]
        o.same(f"linear {to}", t.resize(to, "linear"), F.interpolate(p, size, mode="bilinear"), 64.0)
        o.same(f"cubic {to}", t.resize(to, "cubic"), F.interpolate(p, size, mode="bicubic"), 64.0)
        corners = F.interpolate(p, size, mode="bilinear", align_corners=True)
        o.same(f"linear by corners {to}", t.resize(to, "linear", coordinates="align_corners"), corners, 64.0)
        corners = F.interpolate(p, size, mode="bicubic", align_corners=True)
        o.same(f"cubic by corners {to}", t.resize(to, "cubic", coordinates="align_corners"), corners, 64.0)
        floor = t.resize(to, coordinates="asymmetric", nearest="floor")
        o.same(f"nearest {to}", floor, F.interpolate(p, size, mode="nearest"))
        exact = t.resize(to, nearest="round_prefer_ceil")
        o.same(f"nearest-exact {to}", exact, F.interpolate(p, size, mode="nearest-exact"))
    x = drawn((1, 3, 6))
    t = o.given(x, (1, 3, "L"))
    want = F.interpolate(torch.from_numpy(x), 12, mode="linear")
    o.same("linear of an open size", t.resize((1, 3, "2*L"), "linear", scales=(1, 1, 2)), want, 64.0)
