"""Layouts in memory agree with the addresses that kernels compute."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.expr import expr, var
from tatami.core.layout import Layout, address, size_elements
from tatami.runtime.layouts import lay_out, lies_in

LAYOUTS = [
    Layout(),
    Layout("col_major"),
    Layout("blocked", blocks=((1, 4),)),
    Layout("blocked", order=(1, 0, 2), blocks=((1, 4), (2, 3))),
    Layout("blocked", blocks=((0, 2), (0, 2)), padding=((0, 0), (1, 1), (2, 0))),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_element_lies_at_its_address(layout: Layout) -> None:
    array = np.arange(1, 5 * 6 * 7 + 1, dtype=np.float32).reshape(5, 6, 7)
    memory = lay_out(array, layout).reshape(-1)
    shape = tuple(expr(s) for s in array.shape)
    assert memory.size == evaluate(size_elements(layout, shape), {})
    at = address(layout, shape, (var("a"), var("b"), var("c")))
    for index in np.ndindex(array.shape):
        assert memory[evaluate(at, dict(zip("abc", index)))] == array[index]


def test_what_lies_right_is_not_copied() -> None:
    array = np.zeros((3, 4), np.float32)
    assert lies_in(array, None)
    assert lies_in(array.T, Layout("col_major"))
    assert not lies_in(array, Layout("col_major"))
