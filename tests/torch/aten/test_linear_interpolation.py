"""Linear interpolation: one operator forward and one for its gradient, with eager's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import tatami as tt
from tatami.backends.torch_report import REPORTS
from tatami.torch.aten.resize import LINEAR
from tatami.torch.decompose import whole_interpolation

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of torch 2.13 warns of itself


@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((2, 3, 8, 8), {"scale_factor": 2.0, "mode": "bilinear"}),
        ((2, 3, 7, 9), {"size": (12, 5), "mode": "bilinear", "align_corners": True}),
        ((2, 3, 7, 9), {"scale_factor": 1.7, "mode": "bilinear"}),
        ((2, 3, 7, 9), {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
        ((2, 3, 7), {"scale_factor": 2.5, "mode": "linear"}),
        ((1, 2, 4, 5, 6), {"size": (8, 9, 3), "mode": "trilinear"}),
        ((2, 3, 1, 1), {"size": (1, 4), "mode": "bilinear", "align_corners": True}),
    ],
)
def test_linear_interpolation_and_its_gradient_are_one_operator_each(shape: tuple[int, ...], how: dict[str, Any]) -> None:
    torch._dynamo.reset()
    REPORTS.clear()
    x = torch.randn(shape, requires_grad=True)
    compiled = torch.compile(
        lambda x: functional.interpolate(x, **how), backend="tatami", dynamic=False, options={"target": "reference"}
    )
    mine, eager = compiled(x), functional.interpolate(x, **how)
    torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-5)
    along = torch.randn_like(eager)
    (got,), (wanted,) = (torch.autograd.grad(y, x, along) for y in (mine, eager))
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert [r.nodes for r in REPORTS] == [1, 1] and not any(r.unsupported for r in REPORTS)


@pytest.mark.parametrize("align_corners", [False, True])
def test_pixels_in_bytes_are_rounded_means(align_corners: bool) -> None:
    torch._dynamo.reset()
    x = torch.randint(0, 256, (2, 3, 5, 4), dtype=torch.uint8)
    how: dict[str, Any] = {"size": (7, 9), "mode": "bilinear", "align_corners": align_corners}
    mine = torch.compile(lambda x: functional.interpolate(x, **how), backend="tatami", dynamic=False)(x)
    assert mine.dtype == torch.uint8
    exact = functional.interpolate(x.double(), **how)
    assert (mine.double() - exact).abs().max() <= 0.5 + 1e-4


def test_pytorchs_own_kernels_are_back_after_a_compilation() -> None:
    ops = [getattr(torch.ops.aten, f"upsample_{name}").vec for name in LINEAR]
    before = [dict(op.py_kernels) for op in ops]
    with whole_interpolation():
        assert [dict(op.py_kernels) for op in ops] != before
    assert [dict(op.py_kernels) for op in ops] == before


def test_open_sizes_are_interpolated_as_pytorch_takes_them_apart() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
        backend="tatami",
        dynamic=True,
        options={"target": "reference"},
    )
    for size in (5, 8):
        x = torch.randn(2, 3, size, size + 1, requires_grad=True)
        mine, eager = compiled(x), functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-5)
        (got,), (wanted,) = (torch.autograd.grad(y.sum(), x) for y in (mine, eager))
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, scale_factor=2.0, mode="bilinear")


def test_an_exported_interpolation_is_a_resize() -> None:
    x = torch.randn(1, 2, 5, 6)
    f = tt.compile(torch.export.export(Doubled(), (x,)), target="reference")
    (y,) = f({"x": x.numpy()}).values()
    np.testing.assert_allclose(y, Doubled()(x).numpy(), rtol=1e-5, atol=1e-5)
    assert [n.op for n in f.stages["frontend"].value.main.graph] == ["resize"]
