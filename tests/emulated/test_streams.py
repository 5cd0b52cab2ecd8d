"""Streaming kernels on the emulated target: what data decide, and lines of every length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tests.emulated.test_models import check, eighths


def test_an_index_outside_is_the_diagnostic_of_every_target() -> None:
    g = tt.Graph("rows")
    x = g.input("x", (4, 8), tt.fp32)
    g.output("y", x.take(g.input("index", ("N",), tt.i64), 0))
    f = tt.compile(g, target="emulated-sm80")
    x_ = eighths(4, 8)
    np.testing.assert_array_equal(f(x=x_, index=np.array([3, -4]))["y"], x_[[3, 0]])
    with pytest.raises(TatamiError, match="IndexOutOfRange"):
        f(x=x_, index=np.array([0, 4]))


def rows(length: int | str) -> tt.Graph:
    g = tt.Graph("rows")
    x = g.input("x", ("M", length), tt.fp32)
    g.output("y", x.softmax(-1))
    g.output("at", x.argmax(-1))
    g.output("running", x.cumsum(-1))
    g.output("columns", x.transpose(0, 1).max(0))
    return g


@pytest.mark.parametrize(("length", "runs"), [("K", (1, 3, 33, 36, 1024, 1028)), (1100, (1100,)), (9000, (9000,))])
def test_lines_of_every_length(length: int | str, runs: tuple[int, ...]) -> None:
    """Joined by a warp or a block, with vectors or without, held in registers or read again."""
    f = tt.compile(rows(length), target="emulated-sm80")
    reference = tt.compile(rows(length), target="reference")
    for n in runs:
        x = eighths(3, n)
        got, want = f(x=x), reference(x=x)
        for name in want:
            np.testing.assert_allclose(np.asarray(got[name]), np.asarray(want[name]), rtol=1e-4, atol=1e-4)


def test_a_small_network_of_convolutions_runs_whole() -> None:
    g = tt.Graph("network")
    x = g.input("x", ("N", 3, 12, 12), tt.fp32)
    h = x.conv(g.constant(eighths(8, 3, 3, 3)), padding=1)
    h = h.batch_norm(*(g.constant(np.abs(eighths(8, seed=i)) + 0.5) for i in range(4))).relu().max_pool(2, 2)
    h = h.conv(g.constant(eighths(8, 8, 3, 3)), stride=2, padding=1, groups=1).silu().mean([2, 3])
    g.output("y", (h @ g.constant(eighths(8, 10))).softmax(-1))
    check(g, {"x": eighths(2, 3, 12, 12)}, "emulated-sm80")


def test_the_digits_network_runs_whole() -> None:
    model = Path(__file__).parent.parent.parent / "examples" / "digits" / "digits.onnx"
    image = np.abs(eighths(2, 1, 8, 8))
    got = tt.compile(model, target="emulated-sm80")(image=image)["probability"]
    want = tt.compile(model, target="reference")(image=image)["probability"]
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)
