"""Index expressions from lane to lane: what moves evenly, what stands still, and quotients that no lane changes."""

from __future__ import annotations

import random

import numpy as np

import tatami as tt
from tatami.core.algebra.lane_step import lane_step
from tatami.core.algebra.visit import evaluate
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, var


def test_a_quotient_that_no_lane_changes_stands_still() -> None:
    x, y = var("x"), var("y")
    assert lane_step(floordiv(x, expr(64)), "x") is None
    assert lane_step(floordiv(x, expr(64)), "x", 16) == ZERO
    assert lane_step(floordiv(x + y * 32, expr(64)) * 3 + x, "x", 16) == ONE
    assert lane_step(floordiv(x + y, expr(64)), "x", 16) is None
    assert lane_step(floordiv(x + 8, expr(64)), "x", 16) is None
    assert lane_step(floordiv(x, expr(24)), "x", 16) is None
    assert lane_step(floordiv(x * 2, expr(64)), "x", 16) == ZERO
    assert lane_step(floordiv(x * 3, expr(64)), "x", 16) is None


def test_the_step_is_what_evaluation_gives() -> None:
    rng = random.Random(0)
    still = 0
    for _ in range(2000):
        lanes = rng.choice([4, 8, 16])
        den = rng.choice([3, 4, 16, 24, 48, 64])
        num: Expr = (
            var("x") * rng.choice([1, 1, 1, 2]) + var("y") * rng.choice([0, 1, 8, 16, 32]) + rng.choice([0, 0, 4, 16, 48])
        )
        e = floordiv(num, expr(den)) * rng.choice([1, 5]) + var("x") * rng.choice([0, 1, 3])
        step = lane_step(e, "x", lanes)
        if step is None:
            continue
        still += 1
        for x in range(0, 5 * lanes, lanes):
            for y in (0, 1, 7):
                values = [evaluate(e, {"x": x + i, "y": y}) for i in range(lanes)]
                assert values == [values[0] + i * evaluate(step, {"y": y}) for i in range(lanes)], (str(e), lanes)
    assert still > 200


def test_a_group_norm_reads_its_channels_once_per_vector() -> None:
    """Channels are quotients of the index along a group: one number per vector, not one per lane."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 8, 16, 16)).astype(np.float32)
    w, b = (rng.standard_normal(8).astype(np.float32) for _ in range(2))
    g = tt.Graph("group_norm")
    groups = g.input("x", x.shape, tt.fp32).reshape((1, 2, 1024))
    centred = groups - groups.mean(axis=2, keepdims=True).expand((1, 2, 1024))
    scale = (centred * centred).mean(axis=2, keepdims=True) + 1e-5
    normed = (centred / scale.sqrt().expand((1, 2, 1024))).reshape(x.shape)
    wide = [g.constant(a.reshape(1, 8, 1, 1)).expand(x.shape) for a in (w, b)]
    g.output("y", normed * wide[0] + wide[1])
    f = tt.compile(g)
    r = x.astype(np.float64).reshape(1, 2, -1)
    r = ((r - r.mean(-1, keepdims=True)) / np.sqrt(r.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    np.testing.assert_allclose(f(x=x)["y"], r * w.reshape(8, 1, 1) + b.reshape(8, 1, 1), rtol=1e-4, atol=1e-5)
    assert "for q_" not in f.stages["loop"].text  # no loop over lanes
