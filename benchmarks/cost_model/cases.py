"""Regions of the kinds that models consist of, each a program of its own: windows, stencils, convolutions of few channels, reductions, rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import tatami as tt
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor

Case = Callable[[], Graph]
"""A function that makes the program of one case."""


def _of(shape: tuple[int, ...], make: Callable[[Graph, Tensor], Tensor]) -> Graph:
    """The program that applies `make` to one input of this shape."""
    g = tt.Graph("case")
    g.output("y", make(g, g.input("x", shape, tt.fp32)))
    return g


def _weights(g: Graph, *shape: int) -> Tensor:
    """A constant with normal numbers."""
    return g.constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def _pool(how: str, shape: tuple[int, ...], kernel: int, stride: int, pad: int) -> Graph:
    """A window of kernel x kernel over planes; `how`: max_pool or avg_pool."""
    return _of(shape, lambda g, x: getattr(x, how)((kernel, kernel), (stride, stride), pad))


def _conv(shape: tuple[int, ...], filters: int, kernel: int, stride: int = 1, groups: int = 1) -> Graph:
    """A convolution with padding that keeps the size, a bias and ReLU."""
    pad = kernel // 2

    def make(g: Graph, x: Tensor) -> Tensor:
        w, b = _weights(g, filters, shape[1] // groups, kernel, kernel), _weights(g, filters)
        return x.conv(w, b, stride=stride, padding=pad, groups=groups).relu()

    return _of(shape, make)


def _gates(width: int, batch: int) -> Graph:
    """One step of an LSTM cell: the product with the state, four gates, the new cell and state."""
    g = tt.Graph("case")
    x, h, c = (g.input(n, (batch, k * width), tt.fp32) for n, k in (("x", 4), ("h", 1), ("c", 1)))
    z = x + h @ _weights(g, width, 4 * width)
    i, o, f, n = (z[:, k * width : (k + 1) * width] for k in range(4))
    cell = f.sigmoid() * c + i.sigmoid() * n.tanh()
    g.output("cell", cell)
    g.output("state", o.sigmoid() * cell.tanh())
    return g


def _product(rows: int, k: int, columns: int) -> Graph:
    """A product with constant weights and a bias."""
    return _of((rows, k), lambda g, x: x @ _weights(g, k, columns) + _weights(g, columns).expand((rows, columns)))


def _layer_norm(shape: tuple[int, ...]) -> Graph:
    return _of(shape, lambda g, x: x.layer_norm(_weights(g, shape[-1]), _weights(g, shape[-1])))


def _concat(shapes: tuple[tuple[int, ...], ...], axis: int) -> Graph:
    g = tt.Graph("case")
    first, *others = (g.input(f"x{k}", shape, tt.fp32) for k, shape in enumerate(shapes))
    g.output("y", g.concat([first.relu(), *others], axis=axis))
    return g


def _resize(shape: tuple[int, ...], by: int, mode: str) -> Graph:
    return _of(shape, lambda g, x: x.resize((*shape[:2], *(n * by for n in shape[2:])), mode=mode))


CASES: dict[str, Case] = {
    "max 2x2 by 2, 64x32x8x8": partial(_pool, "max_pool", (64, 32, 8, 8), 2, 2, 0),
    "max 2x2 by 2, 1x64x56x56": partial(_pool, "max_pool", (1, 64, 56, 56), 2, 2, 0),
    "max 3x3 by 2, 1x64x112x112": partial(_pool, "max_pool", (1, 64, 112, 112), 3, 2, 1),
    "max 3x3, 1x64x56x56": partial(_pool, "max_pool", (1, 64, 56, 56), 3, 1, 1),
    "max 3x3, 1x128x14x14": partial(_pool, "max_pool", (1, 128, 14, 14), 3, 1, 1),
    "max 5x5, 1x128x20x20": partial(_pool, "max_pool", (1, 128, 20, 20), 5, 1, 2),
    "max 3x3 by 2, 1x96x27x27": partial(_pool, "max_pool", (1, 96, 27, 27), 3, 2, 0),
    "mean 2x2 by 2, 1x128x28x28": partial(_pool, "avg_pool", (1, 128, 28, 28), 2, 2, 0),
    "mean 3x3, 1x64x35x35": partial(_pool, "avg_pool", (1, 64, 35, 35), 3, 1, 1),
    "depthwise 3x3, 1x96x56x56": partial(_conv, (1, 96, 56, 56), 96, 3, 1, 96),
    "depthwise 3x3 by 2, 1x96x56x56": partial(_conv, (1, 96, 56, 56), 96, 3, 2, 96),
    "depthwise 5x5, 1x240x14x14": partial(_conv, (1, 240, 14, 14), 240, 5, 1, 240),
    "depthwise 3x3, 1x576x7x7": partial(_conv, (1, 576, 7, 7), 576, 3, 1, 576),
    "depthwise 5x5 by 2, 1x96x28x28": partial(_conv, (1, 96, 28, 28), 96, 5, 2, 96),
    "conv 3x3 of 1, 64x1x8x8": partial(_conv, (64, 1, 8, 8), 32, 3),
    "conv 3x3 of 1, 1x1x28x28": partial(_conv, (1, 1, 28, 28), 16, 3),
    "conv 3x3 of 3 by 2, 1x3x112x112": partial(_conv, (1, 3, 112, 112), 32, 3, 2),
    "conv 3x3 of 3, 1x3x64x64": partial(_conv, (1, 3, 64, 64), 16, 3),
    "conv 5x5 of 1, 1x1x28x28": partial(_conv, (1, 1, 28, 28), 8, 5),
    "conv 3x3 of 32, 64x32x4x4": partial(_conv, (64, 32, 4, 4), 64, 3),
    "conv 3x3 of 16, 1x16x48x48": partial(_conv, (1, 16, 48, 48), 16, 3),
    "conv 1x1 of 24, 1x24x28x28": partial(_conv, (1, 24, 28, 28), 72, 1),
    "sum of rows, 128x768": partial(_of, (128, 768), lambda g, x: x.sum(axis=1)),
    "mean of columns, 197x384": partial(_of, (197, 384), lambda g, x: x.mean(axis=0)),
    "mean of planes, 1x512x7x7": partial(_of, (1, 512, 7, 7), lambda g, x: x.global_avg_pool()),
    "max of rows, 300x91": partial(_of, (300, 91), lambda g, x: x.max(axis=1)),
    "softmax, 96x197": partial(_of, (96, 197), lambda g, x: x.softmax()),
    "softmax, 40x6625": partial(_of, (40, 6625), lambda g, x: x.softmax()),
    "softmax down, 1x16x400": partial(_of, (1, 16, 400), lambda g, x: x.softmax(axis=1)),
    "layer norm, 128x256": partial(_layer_norm, (128, 256)),
    "layer norm, 49x25": partial(_layer_norm, (49, 25)),
    "nearest by 2, 1x64x20x20": partial(_resize, (1, 64, 20, 20), 2, "nearest"),
    "linear by 2, 1x32x24x24": partial(_resize, (1, 32, 24, 24), 2, "linear"),
    "gates of 25, 1 row": partial(_gates, 25, 1),
    "gates of 25, 16 rows": partial(_gates, 25, 16),
    "gates of 128, 1 row": partial(_gates, 128, 1),
    "product 1x25x100": partial(_product, 1, 25, 100),
    "product 8x40x10": partial(_product, 8, 40, 10),
    "transpose, 1x64x400": partial(_of, (1, 64, 400), lambda g, x: x.transpose().relu()),
    "pad by 1, 1x32x30x30": partial(_of, (1, 32, 30, 30), lambda g, x: x.pad(((0, 0), (0, 0), (1, 1), (1, 1))).relu()),
    "joined channels, 24x20x20": partial(_concat, ((1, 24, 20, 20), (1, 24, 20, 20)), 1),
    "joined columns, 49x25": partial(_concat, ((49, 25), (49, 25)), 1),
    "sigmoid, 1x8400x80": partial(_of, (1, 8400, 80), lambda g, x: x.sigmoid()),
    "every second, 1x64x56x56": partial(_of, (1, 64, 56, 56), lambda g, x: x[:, :, ::2, ::2].relu()),
}
"""Name -> the program of a case."""
