"""Reductions, scans, orders: every axis and several at once, no elements, NaN, ties, every dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tests.frontend.oracles.elementwise import FLOATS
from tests.frontend.oracles.oracle import Oracle, oracle

AXES: list[int | tuple[int, ...] | None] = [None, 0, 1, 2, -1, -3, (0, 1), (1, 2), (-1, 0), (2, 0, 1), ()]


def drawn(shape: Sequence[int], dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        low = 0 if np.dtype(dtype).kind == "u" else -9
        return rng.integers(low, 10, shape).astype(dtype)
    return (rng.integers(-24, 25, shape) / 8).astype(dtype)


@oracle
def reductions_over_any_axes(o: Oracle) -> None:
    x = drawn((5, 7, 17))
    wide = x.astype(np.float64)
    for label, t in (("fixed", o.given(x)), ("open", o.given(x, ("A", "B", "C")))):
        for axes in AXES if label == "fixed" else AXES[::2]:
            for keep in (False, True):
                named: dict[str, Any] = {"axis": axes, "keepdims": keep}
                what = f"{axes} {keep} {label}"
                o.same(f"sum {what}", t.sum(axes, keep), wide.sum(**named))
                o.same(f"max {what}", t.max(axes, keep), x.max(**named))
                if keep != (label == "open"):
                    continue
                o.same(f"mean {what}", t.mean(axes, keep), wide.mean(**named))
                o.same(f"min {what}", t.min(axes, keep), x.min(**named))
                o.same(f"variance {what}", t.variance(axes, keep), wide.var(**named))
                o.same(f"any {what}", (t > 2.5).any(axes, keep), (x > 2.5).any(**named))
                o.same(f"all {what}", (t > -2.9).all(axes, keep), (x > -2.9).all(**named))
                o.same(f"logsumexp {what}", t.logsumexp(axes, keep), np.log(np.exp(wide).sum(**named)))
    near = 1 + x / 64
    for axes in (None, 1, (0, 2)):
        o.same(f"prod {axes}", o.given(near).prod(axes), near.astype(np.float64).prod(axis=axes), 64.0)
    for correction in (0, 1, 3):
        want = torch.from_numpy(wide).var((0, 2), correction=correction)
        o.same(f"variance corrected {correction}", o.given(x).variance((0, 2), correction=correction), want)
    o.same("l1", o.given(x).one("reduce_l1", axes=(1,)), np.abs(wide).sum(1))
    o.same("l2", o.given(x).one("reduce_l2", axes=(0, 2)), np.sqrt((wide**2).sum((0, 2))))
    o.same("sum_square", o.given(x).one("reduce_sum_square", axes=(-1,)), (wide**2).sum(-1))
    o.same("log_sum", o.given(np.abs(x) + 1).one("reduce_log_sum", axes=(0,)), np.log((np.abs(wide) + 1).sum(0)))


@oracle
def reductions_of_every_dtype(o: Oracle) -> None:
    for label, (dtype, to) in FLOATS.items():
        x = drawn((6, 33), dtype)
        exact = torch.from_numpy(x.astype(np.float64))
        t = o.given(x, ("A", "B"))
        o.same(f"sum {label}", t.sum(1), exact.sum(1).to(to), 2.0)
        o.same(f"mean {label}", t.mean(0), exact.mean(0).to(to), 2.0)
        o.same(f"variance {label}", t.variance(1), exact.var(1, correction=0).to(to), 4.0)
        o.same(f"max {label}", t.max(), exact.max().to(to), 0.0)
        o.same(f"min {label}", t.min(0), exact.min(0).values.to(to), 0.0)
        o.same(f"logsumexp {label}", t.logsumexp(1), exact.logsumexp(1).to(to), 4.0)
        o.same(f"softmax {label}", t.softmax(0), exact.softmax(0).to(to), 4.0)
        o.same(f"log_softmax {label}", t.log_softmax(1), exact.log_softmax(1).to(to), 4.0)
        o.same(f"cumsum {label}", t.cumsum(1), exact.cumsum(1).to(to), 2.0)
    for dtype in (np.int8, np.uint8, np.int16, np.uint32, np.int64):
        x = drawn((6, 33), dtype)
        t, name = o.given(x, ("A", "B")), np.dtype(dtype).name
        o.same(f"sum {name}", t.sum(1), x.sum(1, dtype=dtype))
        o.same(f"prod {name}", (t.clamp(lo=1)).prod(0), np.maximum(x, 1).prod(0, dtype=dtype))
        o.same(f"max {name}", t.max(1), x.max(1))
        o.same(f"min {name}", t.min((0, 1)), x.min())
        o.same(f"argmax {name}", t.argmax(1), x.argmax(1))
        o.same(f"cumsum {name}", t.cumsum(0), x.cumsum(0, dtype=dtype))
        o.same(f"cumprod {name}", t.cumprod(1), x.cumprod(1, dtype=dtype))
        o.same(f"mean {name}", t.mean(1), np.trunc(x.astype(np.int64).sum(1).astype(dtype) / np.float64(33)).astype(dtype))


@oracle
def reductions_of_nothing_and_of_one(o: Oracle) -> None:
    """Empty sums are 0, products 1, maxima the lowest value, means and variances NaN."""
    for n in (0, 1):
        x = drawn((3, n))
        t, i = o.given(x, (3, f"N{n}")), o.given(x.astype(np.int32), (3, f"N{n}"))
        with np.errstate(all="ignore"):
            o.same(f"sum {n}", t.sum(1), x.sum(1))
            o.same(f"prod {n}", t.prod(1), x.prod(1))
            o.same(f"max {n}", t.max(1), x.max(1, initial=-np.inf))
            o.same(f"min {n}", t.min(1), x.min(1, initial=np.inf))
            o.same(f"max of integers {n}", i.max(1), x.astype(np.int32).max(1, initial=np.iinfo(np.int32).min))
            o.same(f"min of integers {n}", i.min(1), x.astype(np.int32).min(1, initial=np.iinfo(np.int32).max))
            o.same(f"mean {n}", t.mean(1), x.sum(1) / np.float32(n))
            o.same(f"variance {n}", t.variance(1), np.zeros(3, np.float32) / np.float32(n))
            o.same(f"any {n}", (t > 0).any(1), (x > 0).any(1))
            o.same(f"all {n}", (t > 0).all(1), (x > 0).all(1))
            o.same(f"cumsum {n}", t.cumsum(1), x.cumsum(1))
            o.same(f"softmax {n}", t.softmax(1), np.ones_like(x))
            o.same(f"sum of no rows {n}", t.sum(0), x.sum(0))
            o.same(f"logsumexp {n}", t.logsumexp(1), x[:, 0] if n else np.full(3, -np.inf, np.float32))


@oracle
def reductions_of_nan_and_infinities(o: Oracle) -> None:
    rows = [
        [1, np.nan, 3, 2],
        [np.nan, np.nan, 0, 1],
        [np.inf, 1, -np.inf, 2],
        [-np.inf] * 4,
        [np.inf, 5, np.inf, 5],
        [7, 7, 7, 7],
    ]
    for dtype in (np.float32, np.float16, np.float64):
        x = np.array(rows, dtype)
        t = o.given(x)
        name = np.dtype(dtype).name
        with np.errstate(all="ignore"):
            o.same(f"sum {name}", t.sum(1), x.sum(1))
            o.same(f"max {name}", t.max(1), x.max(1))
            o.same(f"min {name}", t.min(1), x.min(1))
            o.same(f"mean {name}", t.mean(1), x.mean(1))
            o.same(f"logsumexp {name}", t.logsumexp(1), torch.from_numpy(x).logsumexp(1))
            o.same(f"argmax {name}", t.argmax(1), x.argmax(1))
            o.same(f"argmin {name}", t.argmin(1), x.argmin(1))
            o.same(f"argmax of columns {name}", t.argmax(0), x.argmax(0))
            o.same(f"cummax {name}", t.cummax(1), np.maximum.accumulate(x, 1))
            o.same(f"cummin {name}", t.cummin(0), np.minimum.accumulate(x, 0))
            o.same(f"cumsum {name}", t.cumsum(1), x.cumsum(1))
            o.same(f"softmax {name}", t.softmax(1), torch.from_numpy(x).softmax(1))


@oracle
def positions_of_extremes(o: Oracle) -> None:
    """The first of equals, or the last; every axis, or all together."""
    x = np.random.default_rng(3).integers(0, 4, (5, 6, 19)).astype(np.float32)
    for label, t in (("fixed", o.given(x)), ("open", o.given(x, ("A", "B", "C")))):
        for axis in (0, 1, 2, -1, -2):
            o.same(f"argmax {axis} {label}", t.argmax(axis), x.argmax(axis))
            o.same(f"argmin {axis} {label}", t.argmin(axis, keepdims=True), np.expand_dims(x.argmin(axis), axis))
            n = x.shape[axis]
            o.same(f"argmax last {axis} {label}", t.argmax(axis, last=True), n - 1 - np.flip(x, axis).argmax(axis))
        o.same(f"argmax of all {label}", t.argmax(None), x.argmax())
        o.same(f"argmin of all {label}", t.argmin(None, keepdims=True), np.full((1, 1, 1), x.argmin()))
        o.same(f"hardmax {label}", t.hardmax(1), np.eye(6, dtype=np.float32)[x.argmax(1)].transpose(0, 2, 1))


@oracle
def running_totals(o: Oracle) -> None:
    x = drawn((4, 37, 3))
    small = 1 + x / 64
    for label, t, p in (
        ("fixed", o.given(x), o.given(small)),
        ("open", o.given(x, ("A", "B", "C")), o.given(small, ("A", "B", "C"))),
    ):
        for axis in (0, 1, -1):
            for exclusive in (False, True):
                for reverse in (False, True):
                    ways = {"exclusive": exclusive, "reverse": reverse}
                    what = f"{axis} {exclusive} {reverse} {label}"
                    o.same(f"cumsum {what}", t.cumsum(axis, **ways), running(np.add, x.astype(np.float64), axis, 0.0, **ways))
                    o.same(
                        f"cumprod {what}",
                        p.cumprod(axis, **ways),
                        running(np.multiply, small.astype(np.float64), axis, 1.0, **ways),
                        16.0,
                    )
                    o.same(f"cummax {what}", t.cummax(axis, **ways), running(np.maximum, x, axis, -np.inf, **ways))
                    o.same(f"cummin {what}", t.cummin(axis, **ways), running(np.minimum, x, axis, np.inf, **ways))
    o.same("1 2 3 4", o.given(np.array([1, 2, 3, 4], np.int32)).cumsum(), [1, 3, 6, 10])
    o.same("1 2 3 4 multiplied", o.given(np.array([1, 2, 3, 4], np.int32)).cumprod(), [1, 2, 6, 24])


def running(f: np.ufunc, x: np.ndarray, axis: int, neutral: float, exclusive: bool, reverse: bool) -> np.ndarray:
    x = np.flip(x, axis) if reverse else x
    out = f.accumulate(x, axis)
    if exclusive:
        shape = list(x.shape)
        shape[axis] = 1
        out = np.concatenate([np.full(shape, neutral, x.dtype), np.take(out, range(x.shape[axis] - 1), axis)], axis)
    return np.flip(out, axis) if reverse else out


@oracle
def orders(o: Oracle) -> None:
    """Stable both ways; NaN after everything ascending, before everything descending."""
    x = np.random.default_rng(5).integers(-4, 5, (4, 23, 3)).astype(np.float32)
    x[1, 3, 0] = x[1, 9, 0] = x[2, 2, 2] = np.nan
    x[0, 0, 1], x[0, 4, 1] = np.inf, -np.inf
    for label, t in (("fixed", o.given(x)), ("open", o.given(x, ("A", "B", "C")))):
        for axis in (0, 1, -1):
            for descending in (False, True):
                values, positions = torch.sort(torch.from_numpy(x), stable=True, dim=axis, descending=descending)
                what = f"{axis} {descending} {label}"
                o.same(f"sort {what}", t.sort(axis, descending), (values, positions))
                o.same(f"argsort {what}", t.argsort(axis, descending), positions)
                if label == "fixed":
                    k = min(3, x.shape[axis])
                    cut = torch.narrow(values, axis, 0, k), torch.narrow(positions, axis, 0, k)
                    o.same(f"topk {what}", t.topk(k, axis, largest=descending), cut)
    for dtype in (np.int8, np.uint8, np.int64, np.float16, np.float64):
        y = drawn((3, 40), dtype, 7)
        o.same(f"sort {np.dtype(dtype)}", o.given(y).sort()[0], np.sort(y, -1))
        o.same(f"argsort {np.dtype(dtype)}", o.given(y).argsort(), np.argsort(y, -1, kind="stable"))
    one = drawn((3, 1))
    o.same("sort of one", o.given(one, (3, "ONE")).sort()[0], one)
    o.same("topk of none", o.given(x).topk(0, 1)[0], x[:, :0])
    o.same("open k", o.given(x, (4, "S", 3)).topk("S - 20", 1)[0].sum(), np.float32(np.nan))
