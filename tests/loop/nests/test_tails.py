"""The tail of an axis behind its vectors multiplies and adds in one rounding if the vectors do: equal operands of
short sums give equal results. (A long sum there goes along lanes, in another order.)"""

from __future__ import annotations

import numpy as np

import tatami as tt


def test_equal_columns_of_a_product_and_equal_windows_give_equal_numbers() -> None:
    g = tt.Graph("m")
    x, w = g.input("x", (3, 3), tt.fp32), g.input("w", (3, 19), tt.fp32)
    image, kernel = g.input("image", (1, 2, 6, 21), tt.fp32), g.input("kernel", (2, 1, 3, 3), tt.fp32)
    g.output("y", x @ w)
    g.output("z", image.conv(kernel, groups=2))
    f = tt.compile(g)
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    for _ in range(4):
        given = {"x": draw(3, 3), "w": np.repeat(draw(3, 1), 19, axis=1), "kernel": draw(2, 1, 3, 3)}
        found = f(image=np.tile(draw(1, 2, 6, 1), 21), **given)
        assert np.array_equal(found["y"], np.repeat(found["y"][:, :1], 19, axis=1))
        assert np.array_equal(found["z"], np.repeat(found["z"][..., :1], 19, axis=3))
