"""Neighbouring axes become one where no address can tell the difference, those of reduces and their results too."""

from __future__ import annotations

import numpy as np

import tatami as tt
from tatami.api import prepare
from tatami.core.target import PRESETS


def test_axes_that_a_reduce_and_the_results_share_are_joined() -> None:
    """The pixels of a channel are one axis in the sums and in the results of a group norm."""
    g = tt.Graph("norm")
    x, w = g.input("x", (2, 12, 5, 7), tt.fp32), g.input("w", (12,), tt.fp32)
    g.output("y", x.group_norm(3, w, w))
    (kernel,) = prepare(g, target=PRESETS["cpu:avx512"]).stages["loop"].main.kernels.values()
    text = str(kernel.body)
    assert "Expr('35')" in text and "Expr('7')" not in text and "Expr('5')" not in text
    inputs = {"x": np.random.default_rng(0).random((2, 12, 5, 7), np.float32), "w": np.arange(12, dtype=np.float32)}
    got, wanted = (tt.compile(g, target=t)(inputs)["y"] for t in ("cpu", "reference"))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
