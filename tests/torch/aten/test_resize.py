"""Nearest interpolation against PyTorch: whole factors are repeated elements, others are positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

import tatami as tt
from tatami import backends
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
    """Vectors next to a border, across it, and within it; joined along the innermost axis."""
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


def test_resizing_without_aliases_pools_of_uneven_windows_and_repeated_edges_with_gradients() -> None:
    x = torch.randn(2, 3, 17, 20, generator=torch.Generator().manual_seed(0))

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        sizes = [
            (s, mode, align) for s in ((7, 9), (30, 11), (1, 1)) for mode in ("bilinear", "bicubic") for align in (False, True)
        ]
        resized = [interpolate(x, size=s, mode=m, antialias=True, align_corners=a) for s, m, a in sizes]
        resized.append(interpolate(x, scale_factor=(0.3, 1.7), mode="bilinear", antialias=True))
        pools = [torch.nn.functional.adaptive_avg_pool2d(x, size) for size in ((5, 7), (1, 3), (17, 21))]
        pads = [torch.nn.functional.pad(x, p, mode="replicate") for p in ((2, 1, 0, 3), (-1, 2, 3, -2))]
        lines = torch.nn.functional.pad(x[0], (3, 2), mode="replicate")
        return [*resized, *pools, *pads, lines, torch.nn.functional.pad(x, (1, 2, 0, 1, 2, 0), mode="replicate")]

    found = []
    options = {"fallback": False, "target": "reference"}
    for run in (f, torch.compile(f, backend=backends.torch_backend, fullgraph=True, options=options)):
        given = x.clone().requires_grad_()
        results = run(given)
        sum((r * torch.linspace(0, 1, r.numel()).reshape(r.shape)).sum() for r in results).backward()
        found.append((results, given.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
