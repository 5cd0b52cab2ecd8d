"""`tile` is one operation with one spelling: in Python and in the language."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor


@pytest.mark.parametrize(("python", "harp"), [
    (lambda x: x.tile(0, 3), "x.tile(0, 3)"),
    (lambda x: x.tile(axis=-1, times=2), "x.tile(axis=-1, times=2)"),
    (lambda x: x.tile((3, 2)), "x.tile([3, 2])"),
    (lambda x: x.tile(1, "N"), "x.tile(1, N)"),
])  # fmt: skip
def test_tile_means_the_same_in_python_and_in_the_language(python: Callable[[Tensor], Tensor], harp: str) -> None:
    g = Graph("g")
    x = g.input("x", (2, "N"), DType.fp32)
    g.output("y", python(x))
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    want = tt.compile(g, target="reference")(x=a)["y"]
    shape = ", ".join(map(str, python(x).shape))
    text = f"graph<N=3> main(x: f32[2, N]) -> (y: f32[{shape}]) {{ return {harp} }}"
    assert np.array_equal(tt.compile(tt.parse(text), target="reference")(x=a)["y"], want)


def test_tile_of_one_number_or_of_a_count_per_axis_without_a_list_is_refused() -> None:
    x = Graph("g").input("x", (2, 3), DType.fp32)
    with pytest.raises(TatamiError, match="an axis and a count"):
        x.tile(2)
    with pytest.raises(TatamiError, match="AxisOutOfRange"):
        x.tile(2, 3)
