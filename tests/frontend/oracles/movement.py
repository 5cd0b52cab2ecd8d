"""Movement: values of operands in other places, on fixed and open sizes; and pieces put together."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

from tests.frontend.oracles.oracle import Oracle, oracle
from tests.frontend.oracles.reduction import drawn


@oracle
def views(o: Oracle) -> None:
    x = drawn((3, 4, 5))
    for label, t in (("fixed", o.given(x)), ("open", o.given(x, ("A", "B", "C")))):
        for perm in ((0, 1, 2), (2, 0, 1), (1, 0, 2), (-1, 0, -2)):
            o.same(f"permute {perm} {label}", t.permute(perm), x.transpose([p % 3 for p in perm]))
        o.same(f"transpose {label}", t.transpose(), x.swapaxes(-1, -2))
        o.same(f"transpose 0 -1 {label}", t.transpose(0, -1), x.swapaxes(0, -1))
        o.same(f"flip {label}", t.flip(1), np.flip(x, 1))
        o.same(f"flip of all {label}", t.flip(), np.flip(x))
        o.same(f"flip -1 0 {label}", t.flip(-1, 0), np.flip(x, (-1, 0)))
        o.same(f"unsqueeze {label}", t.unsqueeze(0, -1), x[None, ..., None])
        o.same(f"squeeze {label}", t.unsqueeze(1, 3).squeeze(-2, 1), x)
        o.same(f"squeeze of all {label}", t.unsqueeze(1, 3).squeeze(), x)
        o.same(f"flatten {label}", t.flatten(), x.reshape(-1))
        o.same(f"flatten 1 {label}", t.flatten(1), x.reshape(3, 20))
        o.same(f"flatten 0 -2 {label}", t.flatten(0, -2), x.reshape(12, 5))
        o.same(f"reshape {label}", t.reshape(-1, t.shape[1]), x.reshape(-1, 4))
        o.same(f"reshape of a permutation {label}", t.permute(2, 0, 1).reshape(-1), x.transpose(2, 0, 1).reshape(-1))
        o.same(f"tile {label}", t.tile((2, 1, 3)), np.tile(x, (2, 1, 3)))
        o.same(f"repeat {label}", t.sum(1, keepdims=True).repeat(1, 6), np.repeat(x.sum(1, keepdims=True), 6, 1))
        o.same(f"expand {label}", t.expand(2, *t.shape), np.broadcast_to(x, (2, 3, 4, 5)))
        o.same(
            f"expand by dims {label}",
            t.expand(t.shape[0], 7, *t.shape[1:], dims=(0, 2, 3)),
            np.broadcast_to(x[:, None], (3, 7, 4, 5)),
        )
        o.same(f"roll {label}", t.roll(2, 1), np.roll(x, 2, 1))
        o.same(f"roll back far {label}", t.roll(-13, -1), np.roll(x, -13, -1))
        o.same(f"roll of two {label}", t.roll((1, -2), (0, 2)), np.roll(x, (1, -2), (0, 2)))
        o.same(f"triu {label}", t.triu(), np.triu(x))
        o.same(f"triu 1 {label}", t.triu(1), np.triu(x, 1))
        o.same(f"tril -1 {label}", t.tril(-1), np.tril(x, -1))
        o.same(f"tril 2 {label}", t.tril(2), np.tril(x, 2))
        o.same(f"pad {label}", t.pad([(1, 0), (0, 2), (3, 1)], 1.5), np.pad(x, [(1, 0), (0, 2), (3, 1)], constant_values=1.5))
        o.same(f"crop {label}", t.pad([(-1, 0), (0, -2), (1, -1)]), np.pad(x[1:, :-2, :-1], [(0, 0), (0, 0), (1, 0)]))
        for mode in ("edge", "reflect", "wrap"):
            pads = [(0, 0), (2, 1), (1, 3)]
            o.same(f"pad {mode} {label}", t.pad(pads, mode=mode), np.pad(x, pads, mode=mode))
        o.same(f"view {label}", t.view((5, 3), map=["i1", "1", "i0"]), x[:, 1].T)
    square = drawn((2, 6, 6))
    o.same("diagonal", o.given(square).diagonal(), np.diagonal(square, axis1=1, axis2=2))
    o.same(
        "view of the line",
        o.given(square).view((4, 5), linear="7*i0 + i1"),
        square.ravel()[np.add.outer(7 * np.arange(4), np.arange(5))],
    )
    o.same(
        "depth_to_space",
        o.given(drawn((1, 12, 2, 3))).depth_to_space(2, "CRD"),
        F.pixel_shuffle(torch.from_numpy(drawn((1, 12, 2, 3))), 2),
    )
    o.same(
        "space_to_depth",
        o.given(drawn((2, 3, 4, 6))).space_to_depth(2, "CRD"),
        F.pixel_unshuffle(torch.from_numpy(drawn((2, 3, 4, 6))), 2),
    )


@oracle
def views_of_every_dtype(o: Oracle) -> None:
    for dtype in (np.bool_, np.int8, np.uint16, np.int64, np.uint64, np.float16, ml_dtypes.bfloat16, np.float64):
        x = drawn((3, 4, 5), np.int64).astype(dtype)
        t, name = o.given(x, ("A", 4, "C")), np.dtype(dtype).name
        for what, tensor, want in (
            ("slice", t[1:, ::-2, None], x[1:, ::-2, None]),
            ("permute", t.permute(2, 1, 0), x.transpose(2, 1, 0)),
            ("tile", t.tile(1, 2), np.tile(x, (1, 2, 1))),
            ("pad", t.pad([(0, 1)] * 3, True if dtype is np.bool_ else 1), np.pad(x, [(0, 1)] * 3, constant_values=dtype(1))),
            ("concat", o.g.concat([t, t.flip(0)], 1), np.concatenate([x, x[::-1]], 1)),
            ("roll", t.roll(1, 0), np.roll(x, 1, 0)),
            ("triu", t.triu(1), np.triu(x, 1)),
        ):
            o.same(f"{what} {name}", tensor, want.astype(np.float32) if name == "bfloat16" else want)


@oracle
def pieces(o: Oracle) -> None:
    x, y, z = drawn((3, 5)), drawn((4, 5), seed=1), drawn((0, 5))
    for label, a, b in (("fixed", o.given(x), o.given(y)), ("open", o.given(x, ("A", "C")), o.given(y, ("B", "C")))):
        o.same(f"concat {label}", o.g.concat([a, b, a], 0), np.concatenate([x, y, x]))
        o.same(
            f"concat of slices {label}",
            o.g.concat([a[:, :2], a, a[:, ::-1]], -1),
            np.concatenate([x[:, :2], x, x[:, ::-1]], -1),
        )
        o.same(f"stack {label}", o.g.stack([a, a * 2], 1), np.stack([x, x * 2], 1))
        o.same(f"stack at the end {label}", o.g.stack([a, a * 2, a], -1), np.stack([x, x * 2, x], -1))
    o.same("concat with nothing", o.g.concat([o.given(x), o.given(z, ("ZERO", 5))], 0), x)
    line = drawn((11, 3))
    o.same("split", o.given(line).split([3, 0, 8]), (line[:3], line[3:3], line[3:]))
    o.same("split by 4", o.given(line).split(4), (line[:4], line[4:8], line[8:]))
    o.same("split of columns", o.given(line, ("N", 3)).split([1, 2], -1), (line[:, :1], line[:, 1:]))
    o.same("split of open", o.given(line, ("M", 3)).split([4, "M - 4"]), (line[:4], line[4:]))


@oracle
def windows(o: Oracle) -> None:
    """unfold of one to three axes with channels, batch and groups; fold adds windows up."""
    for shape, kernel, stride, dilation in (
        ((10,), (3,), (2,), (1,)),
        ((4, 11), (3,), (1,), (2,)),
        ((4, 7, 9), (3, 2), (2, 1), (1, 2)),
        ((2, 4, 7, 9), (2, 3), (1, 2), (2, 1)),
        ((2, 4, 5, 6), (2, 2, 3), (1, 2, 1), (1, 1, 2)),
    ):
        x = drawn(shape)
        n = len(kernel)
        seen = torch.from_numpy(x)
        for j, (k, s, d) in enumerate(zip(kernel, stride, dilation)):
            seen = seen.unfold(len(shape) - n + j, (k - 1) * d + 1, s)[..., ::1]
            seen = seen[..., ::d]
        lead = len(shape) - n
        want = seen.permute(*range(lead), *range(lead + n, lead + 2 * n), *range(lead, lead + n))
        t = o.given(x, tuple(f"S{len(shape)}{n}_{i}" if i >= lead else m for i, m in enumerate(shape)))
        what = f"{shape} {kernel}"
        o.same(f"unfold {what}", t.unfold(kernel, stride, dilation), want)
        counts = np.zeros(shape[lead:])
        for place in np.ndindex(*want.shape[lead + n :]):
            for inside in np.ndindex(*kernel):
                counts[tuple(p * s + i * d for p, s, i, d in zip(place, stride, inside, dilation))] += 1
        o.same(f"fold of unfold {what}", t.unfold(kernel, stride, dilation).fold(t.shape, kernel, stride, dilation), x * counts)
        if lead:
            grouped = want.reshape(*want.shape[: lead - 1], 2, want.shape[lead - 1] // 2, *want.shape[lead:])
            o.same(f"unfold in groups {what}", t.unfold(kernel, stride, dilation, groups=2), grouped)
            back = o.given(grouped.numpy()).fold(shape, kernel, stride, dilation, groups=2)
            o.same(f"fold in groups {what}", back, x * counts)
