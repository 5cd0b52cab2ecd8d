"""Programs whose products take the ring of the SM80 template, on the emulated machine: convolutions, views, split k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.gpu.ir import Kernel
from tests.emulated.test_models import check, eighths


def kernels(f: Any) -> list[Kernel]:
    return [k for k in f.stages["gpu"].value.main.kernels if isinstance(k, Kernel)]


@pytest.mark.parametrize(
    ("channels", "filters", "window", "options"),
    [
        (5, 7, (3, 3), {"stride": (2, 2), "padding": ((1, 1), (1, 1))}),
        (8, 6, (3, 2), {"dilation": (2, 1), "padding": ((2, 0), (0, 1)), "groups": 2}),
        (3, 4, (1, 1), {"stride": (2, 2)}),
    ],
    ids=["stride and padding", "dilation and groups", "1x1 with a stride"],
)
@pytest.mark.parametrize("dtype", [tt.fp32, tt.fp16], ids=str)
def test_convolutions_take_the_ring(channels: int, filters: int, window: tuple[int, int], options: Any, dtype: Any) -> None:
    g = tt.Graph("conv")
    x, w = (
        g.input("x", (2, channels, "H", "W"), dtype),
        g.input("w", (filters, channels // options.get("groups", 1), *window), dtype),
    )
    g.output("y", x.conv(w, **options).relu())
    small = np.float32 if dtype == tt.fp32 else np.float16
    arrays = {
        "x": eighths(2, channels, 9, 11, dtype=small),
        "w": eighths(filters, channels // options.get("groups", 1), *window, dtype=small, seed=1),
    }
    f = check(g, arrays, "emulated-sm80", 1e-5 if dtype == tt.fp32 else 4e-3)
    (k,) = kernels(f)
    assert k.template == ("fma" if dtype == tt.fp32 else "mma")
    assert k.a.gather is not None or k.b.gather is not None


def test_a_product_of_views_that_are_no_matrices_takes_the_ring() -> None:
    g = tt.Graph("views")
    x, y = g.input("x", (4, 6, 5, 8), tt.fp32), g.input("y", (6, 5, 7), tt.fp32)
    g.output("z", x.permute((0, 3, 1, 2)).reshape((32, 30)) @ y.reshape((30, 7)))
    f = check(g, {"x": eighths(4, 6, 5, 8), "y": eighths(6, 5, 7, seed=1)}, "emulated-sm80")
    assert [k.template for k in kernels(f)] == ["fma"]


@pytest.mark.parametrize("dtype", [tt.fp32, tt.fp16], ids=str)
def test_few_tiles_and_long_k_are_split(dtype: Any) -> None:
    g = tt.Graph("long")
    small = np.float32 if dtype == tt.fp32 else np.float16
    x, w, b = g.input("x", (20, 4096), dtype), g.input("w", (4096, 24), dtype), g.input("b", (24,), dtype)
    g.output("y", x.gemm(w, b).relu())
    arrays = {"x": eighths(20, 4096, dtype=small), "w": eighths(4096, 24, dtype=small, seed=1), "b": eighths(24, dtype=small)}
    f = check(g, arrays, "emulated-sm80", 1e-4 if dtype == tt.fp32 else 4e-3)
    (k,) = kernels(f)
    assert k.split > 1
    again = f(**arrays)["y"]
    assert np.array_equal(again, f(**arrays)["y"]), "the parts are added in one order"


def test_axes_that_do_not_merge_have_a_tail_of_their_own() -> None:
    """32 rows would be whole tiles; read backwards by fours they are eight batches of 4."""
    g = tt.Graph("backwards")
    x, w = g.input("x", (8, 4, 16), tt.fp32), g.input("w", (16, 24), tt.fp32)
    g.output("y", x.flip(0) @ w)
    check(g, {"x": eighths(8, 4, 16), "w": eighths(16, 24, seed=1)}, "emulated-sm80")
