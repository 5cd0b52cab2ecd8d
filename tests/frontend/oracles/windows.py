"""Convolutions and pools of one to three spatial axes against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.frontend.oracles.oracle import Oracle, oracle
from tests.frontend.oracles.reduction import drawn

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
SPATIAL = {1: (13,), 2: (9, 8), 3: (5, 6, 7)}
KERNEL = {1: (3,), 2: (3, 2), 3: (2, 3, 2)}


def p(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).double()


@oracle
def convolutions(o: Oracle) -> None:
    for n, spatial in SPATIAL.items():
        x = drawn((2, 4, *spatial))
        bias = drawn((6,), seed=3)
        open_shape: tuple[int | str, ...] = ("N", 4, *(f"L{n}_{i}" for i in range(n)))
        ways: list[dict[str, Any]] = [{}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2, "padding": 1}]
        ways += [{"stride": tuple(range(1, n + 1)), "dilation": tuple(range(n, 0, -1)), "padding": 2}]
        for way in ways:
            w = drawn((6, 4 // way.get("groups", 1), *KERNEL[n]), seed=2)
            want = CONV[n](p(x), p(w), p(bias), **way)
            o.same(f"conv {n} {way}", o.given(x).conv(o.given(w), o.given(bias), **way), want, 16.0)
            o.same(f"conv open {n} {way}", o.given(x, open_shape).conv(o.given(w), **way), CONV[n](p(x), p(w), **way), 16.0)
        w = drawn((4, 1, *KERNEL[n]), seed=4)
        o.same(f"depthwise {n}", o.given(x).conv(o.given(w), groups=4), CONV[n](p(x), p(w), groups=4), 16.0)
        w = drawn((8, 1, *KERNEL[n]), seed=4)
        o.same(f"depthwise twice {n}", o.given(x).conv(o.given(w), groups=4), CONV[n](p(x), p(w), groups=4), 16.0)
        w = drawn((3, 4, *KERNEL[n]), seed=5)
        o.same(f"unbatched {n}", o.given(x[0]).conv(o.given(w)), CONV[n](p(x[0]), p(w)), 16.0)
        sides = [(i + 1, 2 - i if i < 2 else 0) for i in range(n)]
        padded = F.pad(p(x), [side for pair in reversed(sides) for side in pair])
        o.same(f"asymmetric {n}", o.given(x).conv(o.given(w), padding=sides), CONV[n](padded, p(w)), 16.0)
        one = drawn((5, 4, *(1,) * n), seed=6)
        o.same(f"one by one {n}", o.given(x, open_shape).conv(o.given(one)), CONV[n](p(x), p(one)), 16.0)
    for dtype, to in ((np.float16, torch.float16), (np.float64, torch.float64)):
        x, w = drawn((1, 3, 6, 6), dtype), drawn((4, 3, 3, 3), dtype, 1)
        o.same(f"conv of {np.dtype(dtype)}", o.given(x).conv(o.given(w)), F.conv2d(p(x), p(w)).to(to), 4.0)
    x = drawn((0, 3, 6, 6))
    o.same("conv of no batch", o.given(x, ("NONE", 3, 6, 6)).conv(o.given(drawn((2, 3, 3, 3)))), np.zeros((0, 2, 4, 4)))


@oracle
def transposed_convolutions(o: Oracle) -> None:
    for n, spatial in {1: (8,), 2: (5, 4), 3: (3, 4, 3)}.items():
        x = drawn((2, 4, *spatial))
        open_shape: tuple[int | str, ...] = ("N", 4, *(f"T{n}_{i}" for i in range(n)))
        ways: list[dict[str, Any]] = [
            {},
            {"stride": 2},
            {"stride": 2, "padding": 1, "output_padding": 1},
            {"dilation": 2, "padding": 1},
        ]
        ways += [
            {"groups": 2, "stride": 3, "output_padding": 2},
            {"stride": 2, "dilation": 3, "padding": 2, "output_padding": 2},
        ]
        for way in ways:
            w = drawn((4, 6 // way.get("groups", 1), *KERNEL[n]), seed=2)
            bias = drawn((6,), seed=3)
            want = CONV_TRANSPOSE[n](p(x), p(w), p(bias), **way)
            o.same(f"{n} {way}", o.given(x).conv_transpose(o.given(w), o.given(bias), **way), want, 16.0)
            if n < 3:
                o.same(f"open {n} {way}", o.given(x, open_shape).conv_transpose(o.given(w), o.given(bias), **way), want, 16.0)
        w = drawn((4, 1, *KERNEL[n]), seed=4)
        o.same(
            f"depthwise {n}",
            o.given(x).conv_transpose(o.given(w), groups=4, stride=2),
            CONV_TRANSPOSE[n](p(x), p(w), groups=4, stride=2),
            16.0,
        )
        w = drawn((4, 3, *KERNEL[n]), seed=5)
        o.same(f"unbatched {n}", o.given(x[0]).conv_transpose(o.given(w)), CONV_TRANSPOSE[n](p(x[0]), p(w)), 16.0)
    x, w = drawn((1, 1, 8)), drawn((1, 1, 3), seed=1)
    assert o.given(x).conv_transpose(o.given(w), stride=2).shape[2].as_int() == 17


MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


@oracle
def pools(o: Oracle) -> None:
    for n, spatial in SPATIAL.items():
        x = np.random.default_rng(n).permutation(2 * 3 * int(np.prod(spatial))).reshape(2, 3, *spatial).astype(np.float32) / 4
        open_shape: tuple[int | str, ...] = ("N", 3, *(f"P{n}_{i}" for i in range(n)))
        for label, t in (("fixed", o.given(x)), ("open", o.given(x, open_shape))):
            ways = ((2, None, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0))[
                1 if label == "open" or n == 3 else 0 : 2 if label == "open" or n == 3 else 4
            ]
            for kernel, stride, padding in ways:
                what = f"{n} {kernel} {stride} {padding} {label}"
                o.same(f"max {what}", t.max_pool(kernel, stride, padding), MAX[n](p(x), kernel, stride, padding), 0.0)
                o.same(
                    f"avg {what}",
                    t.avg_pool(kernel, stride, padding),
                    AVG[n](p(x), kernel, stride, padding, count_include_pad=False),
                )
                if n == 3 and label == "open":
                    continue
                for ceil in (False, True):
                    want = AVG[n](p(x), kernel, stride, padding, ceil, True)
                    got = t.avg_pool(kernel, stride, padding, count_include_pad=True, ceil_mode=ceil)
                    o.same(f"avg with padding {ceil} {what}", got, want)
                o.same(
                    f"max ceil {what}",
                    t.max_pool(kernel, stride, padding, ceil_mode=True),
                    MAX[n](p(x), kernel, stride, padding, ceil_mode=True),
                    0.0,
                )
            o.same(f"max dilated {n} {label}", t.max_pool(2, 1, dilation=2), MAX[n](p(x), 2, 1, dilation=2), 0.0)
            o.same(f"global avg {n} {label}", t.global_avg_pool(), p(x).mean(tuple(range(2, n + 2)), keepdim=True))
            o.same(f"global max {n} {label}", t.global_max_pool(), p(x).amax(tuple(range(2, n + 2)), keepdim=True), 0.0)
            for size in (1, 2, 3, tuple(range(2, n + 2)))[0 if label == "fixed" and n < 3 else 3 :]:
                o.same(f"adaptive avg {n} {size} {label}", t.adaptive_avg_pool(size), ADAPTIVE_AVG[n](p(x), size))
                o.same(f"adaptive max {n} {size} {label}", t.adaptive_max_pool(size), ADAPTIVE_MAX[n](p(x), size), 0.0)
    x = drawn((2, 3, 9, 8))
    o.same("lp", o.given(x).lp_pool(2, 2, p=3), (F.avg_pool2d(p(x).abs() ** 3, 2, 2) * 4) ** (1 / 3), 64.0)
    _, indices = F.max_pool2d(p(x[:1, :1]), 3, 2, 1, return_indices=True)
    unique = np.random.default_rng(1).permutation(72).reshape(1, 1, 9, 8).astype(np.float32)
    _, indices = F.max_pool2d(p(unique), 3, 2, 1, return_indices=True)
    o.same("indices", o.given(unique).max_pool_indices(3, 2, 1), indices)
    for dtype in (np.int8, np.uint8, np.int64, np.float16):
        y = drawn((1, 2, 9), dtype)
        want = F.max_pool1d(p(y), 3, 2, 1).numpy().astype(dtype)
        if np.dtype(dtype).kind != "u":
            o.same(f"max of {np.dtype(dtype)}", o.given(y).max_pool(3, 2, 1), want)
        else:
            o.same(f"max of {np.dtype(dtype)}", o.given(y).max_pool(3, 2, 1), np.maximum(want, 0))
        o.same(
            f"adaptive max of {np.dtype(dtype)}",
            o.given(y).adaptive_max_pool(4),
            F.adaptive_max_pool1d(p(y), 4).numpy().astype(dtype),
        )
