"""Positions among sorted boundaries, by halves where there are many: PyTorch's, ties, infinities and NaN included."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tatami as tt
from tatami.loop.verify import verify as verify_loops

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of torch 2.13 warns of itself


class Searched(torch.nn.Module):
    def __init__(self, right: bool) -> None:
        super().__init__()
        self.right = right

    def forward(self, bounds: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(bounds, value, right=self.right)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((33,), "float32"), ((3, 50), "float64"), ((64,), "int64"), ((2, 1001), "float32")]
)
def test_positions(shape: tuple[int, ...], dtype: str, right: bool) -> None:
    torch.manual_seed(len(shape) + shape[-1])
    bounds = torch.randint(-50, 50, shape).to(getattr(torch, dtype)).sort(-1)[0]
    value = torch.randint(-60, 60, (*shape[:-1], 37)).to(bounds.dtype)
    if bounds.dtype.is_floating_point:
        value[..., 3], value[..., 4], bounds[..., -4:-2], bounds[..., -2:] = (
            float("nan"),
            float("inf"),
            float("inf"),
            float("nan"),
        )
    module = Searched(right)
    f = tt.compile(torch.export.export(module, (bounds, value)))
    assert verify_loops(f.stages["loop"].value) == []
    assert "reduce" not in f.stages["region"].text and "sum" not in f.stages["region"].text
    names = [p.tensor for p in f.signature.inputs]
    (got,) = f(dict(zip(names, (bounds.numpy(), value.numpy()), strict=True))).values()
    assert np.array_equal(np.asarray(got), module(bounds, value).numpy())
