"""Plans of open sizes are chosen where quotients are axes of some elements."""

from __future__ import annotations

import pytest

import tatami as tt
from tatami.core.expr import Expr, expr, floordiv, maximum, var
from tatami.plan.usual_sizes import LEAST, divisors, usual_sizes

N = var("N")


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (N, 1),
        (floordiv(N, expr(256)), 256),
        (floordiv(floordiv(N + 1, expr(2)) + 1, expr(16)) * 3, 32),
        (maximum(expr(1), floordiv(N, expr(8))), 8),
    ],
)
def test_divisors_of_a_symbol(size: Expr, wanted: int) -> None:
    assert max(by for _, by in divisors(size)) == wanted


def test_frames_of_a_sound_are_some() -> None:
    g = tt.Graph("frames")
    x = g.input("x", (1, 1, "samples"), tt.fp32)
    w = g.constant([[[0.5] * 256]] * 8)
    g.output("y", x.conv(w, stride=256).relu())
    f = tt.compile(g, target="cpu")
    assert usual_sizes(f.stages["region"].value.main) == {"samples": LEAST * 256}
    (chosen,) = f.stages["plan"].value.main.regions
    assert chosen.choices[-1].estimate["at.samples"] == LEAST * 256


def test_other_sizes_are_128() -> None:
    g = tt.Graph("plain")
    g.output("y", g.input("x", ("B", 4), tt.fp32).exp())
    f = tt.compile(g, target="cpu")
    assert usual_sizes(f.stages["region"].value.main) == {}
