"""The numpy meaning of recurrent layers, step by step and sequence by sequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from tatami.core.numbers.numerics import Array
from tatami.frontend.meaning.scope import Scope, wide
from tatami.frontend.operations.recurrent import Activated, Recurrent, activations


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_ACTIVATION: dict[str, Callable[..., Array]] = {
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "leaky_relu": lambda x, a: np.where(x >= 0, x, a * x),
    "elu": lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    "affine": lambda x, a, b: a * x + b,
    "scaled_tanh": lambda x, a, b: a * np.tanh(b * x),
    "thresholded_relu": lambda x, a: np.where(x > a, x, 0),
}


def _activated(a: Activated, x: Array) -> Array:
    return np.asarray(_ACTIVATION[a.name](x, *a.parameters))


class _Cell(NamedTuple):
    """The cell of one direction: recurrent weights, biases, peepholes, activations, and the operation's attributes."""

    r: Array
    b: Array
    p: Array
    f: list[Callable[[Array], Array]]
    attrs: Recurrent


def _layer(kind: str, s: Scope, attrs: Recurrent) -> tuple[Array, ...]:
    x, w, r = (wide(s[i]) for i in range(3))
    steps, batch, _ = x.shape
    directions, rows, hidden = r.shape
    bias = s.optional(3)
    b = np.zeros((directions, 2 * rows)) if bias is None else wide(bias)
    given = s.optional(4)
    lengths = np.full(batch, steps) if given is None else given
    start_h, start_c, peep = s.optional(5), s.optional(6), s.optional(7)
    y = np.zeros((steps, directions, batch, hidden))
    last_h = np.zeros((directions, batch, hidden)) if start_h is None else wide(start_h).copy()
    last_c = np.zeros((directions, batch, hidden)) if start_c is None else wide(start_c).copy()
    for d in range(directions):
        p = np.zeros(3 * hidden) if peep is None else wide(peep)[d]
        f: list[Callable[[Array], Array]] = [partial(_activated, a) for a in activations(kind, attrs, d)]
        cell = _Cell(r[d], b[d], p, f, attrs)
        backwards = attrs.direction == "reverse" or d == 1
        for n in range(batch):
            h, c = last_h[d, n], last_c[d, n]
            order = range(int(lengths[n]))
            for t in reversed(order) if backwards else order:
                h, c = _STEP[kind](cell, x[t, n] @ w[d].T, h, c)
                y[t, d, n] = h
            last_h[d, n], last_c[d, n] = h, c
    return (y, last_h, last_c) if kind == "lstm" else (y, last_h)


def _clipped(v: Array, attrs: Recurrent) -> Array:
    return v if attrs.clip is None else np.clip(v, -attrs.clip, attrs.clip)


def _lstm(cell: _Cell, gx: Array, h: Array, c: Array) -> tuple[Array, Array]:
    r, b, p, f, attrs = cell
    half = len(gx)
    i, o, fg, g = np.split(gx + h @ r.T + b[:half] + b[half:], 4)
    pi, po, pf = np.split(p, 3)
    i = f[0](_clipped(i + pi * c, attrs))
    fg = 1 - i if attrs.input_forget else f[0](_clipped(fg + pf * c, attrs))
    c = fg * c + i * f[1](_clipped(g, attrs))
    return f[0](_clipped(o + po * c, attrs)) * f[2](c), c


def _gru(cell: _Cell, gx: Array, h: Array, c: Array) -> tuple[Array, Array]:
    r, b, _, f, attrs = cell
    half = len(gx)
    xz, xr, xh = np.split(gx + b[:half], 3)
    bz, br, bh = np.split(b[half:], 3)
    rz, rr, rh = np.split(r, 3)
    z = f[0](_clipped(xz + h @ rz.T + bz, attrs))
    reset = f[0](_clipped(xr + h @ rr.T + br, attrs))
    inner = reset * (h @ rh.T + bh) if attrs.linear_before_reset else (reset * h) @ rh.T + bh
    return (1 - z) * f[1](_clipped(xh + inner, attrs)) + z * h, c


def _rnn(cell: _Cell, gx: Array, h: Array, c: Array) -> tuple[Array, Array]:
    r, b, _, f, attrs = cell
    half = len(gx)
    return f[0](_clipped(gx + h @ r.T + b[:half] + b[half:], attrs)), c


_STEP = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}
RECURRENT: dict[str, Callable[[Scope, Recurrent], tuple[Array, ...]]] = {kind: partial(_layer, kind) for kind in _STEP}
"""Operation -> numpy meaning."""
