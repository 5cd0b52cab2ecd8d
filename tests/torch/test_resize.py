"""Nearest interpolation against PyTorch: whole factors are repeated elements, others are positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

import tatami as tt
from tatami.loop.ir import Gather, Load
from tatami.loop.walk import nodes

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of torch 2.13 warns of itself


class Resized(torch.nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return interpolate(x, **self.how)


def compiled(module: torch.nn.Module, x: torch.Tensor, **dynamic: Any) -> tt.CompiledFunction:
    return tt.compile(torch.export.export(module.eval(), (x,), **dynamic), target="cpu")


def result(f: tt.CompiledFunction, x: torch.Tensor) -> np.ndarray:
    (y,) = f({"x": x.numpy()}).values()
    return np.asarray(y)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((2, 3, 10, 12), {"scale_factor": 2}), ((2, 3, 10, 12), {"scale_factor": (3, 1)}), ((1, 2, 5, 7), {"scale_factor": 4}),
        ((1, 2, 5, 7), {"scale_factor": 1.5}), ((1, 2, 9, 8), {"size": (4, 20)}), ((1, 2, 9, 8), {"size": (18, 16)}),
        ((2, 4, 11), {"scale_factor": 2}), ((1, 2, 3, 4, 5), {"scale_factor": (2, 3, 2)}), ((1, 2, 9, 8), {"scale_factor": 0.5}),
    ],
)  # fmt: skip
def test_the_nearest_element(shape: tuple[int, ...], how: dict[str, Any], mode: str) -> None:
    x = torch.randn(*shape)
    module = Resized(mode=mode, **how)
    np.testing.assert_array_equal(result(compiled(module, x), x), module(x).numpy())


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("how", [{"scale_factor": 2}, {"size": (31, 40)}])
def test_sizes_that_are_symbols(how: dict[str, Any], mode: str) -> None:
    side = torch.export.Dim("side", min=4, max=64)
    module = Resized(mode=mode, **how)
    f = compiled(module, torch.randn(1, 2, 8, 6), dynamic_shapes=({2: side},))
    for n in (5, 8, 17):
        x = torch.randn(1, 2, n, 6)
        np.testing.assert_array_equal(result(f, x), module(x).numpy())


@pytest.mark.parametrize("factor", [2, 4])
def test_repeated_elements_are_read_once_for_a_vector(factor: int) -> None:
    f = compiled(Resized(scale_factor=factor), torch.randn(1, 3, 8, 16))
    (kernel,) = f.stages["loop"].value.main.kernels.values()
    vectors = [n for n in nodes(kernel.body) if isinstance(n, Gather) and n.lanes > 1]
    assert {n.each for n in vectors} == {factor}
    assert not [n for n in nodes(kernel.body) if isinstance(n, Load) and n.lanes == 1]


@pytest.mark.parametrize("width", [3, 5, 16, 40])
def test_reflected_borders(width: int) -> None:
    """Vectors beside a border, across it, and within it; joined along the innermost axis."""
    x = torch.randn(2, 3, 20, width)
    pad = torch.nn.ReflectionPad2d(min(width - 1, 9))
    np.testing.assert_array_equal(result(compiled(Called(pad), x), x), pad(x).numpy())
    three = Called(lambda x: torch.cat([x, -x, x.flip(-1)], -1))
    np.testing.assert_array_equal(result(compiled(three, x), x), three(x).numpy())


class Called(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.function(x)
        return y
