"""The incomplete gamma functions, the inverse of the normal distribution, and volumes read at places of a grid, against eager."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.test_torch_compile import compiled  # noqa: E402

NAN, INF = float("nan"), float("inf")
VALUES = (0.0, -0.0, 1e-30, 1e-3, 0.5, 1.0, 2.0, 5.0, 19.0, 50.0, 100.0, 1000.0, 1e4, NAN, INF, -1.0)
SHARES = (0.0, 1e-45, 1e-38, 1e-20, 1e-7, 0.01, 0.3, 0.5, 0.7, 0.99, 0.9999999, 1.0, -1.0, 2.0, NAN)


def test_incomplete_gamma_functions_at_ordinary_and_special_values() -> None:
    a, x = torch.tensor(list(product(VALUES, repeat=2))).T.contiguous()

    def f(a: Any, x: Any) -> Any:
        return torch.special.gammainc(a, x), torch.special.gammaincc(a, x)

    torch.testing.assert_close(compiled(f, target="reference")(a, x), f(a, x), rtol=2e-5, atol=2e-6, equal_nan=True)


def test_incomplete_gamma_functions_of_large_parameters() -> None:
    """Arguments from far below the parameter to far above it, in standard deviations; errors in the upper tail are relative to the result (eager's
    lower one is off by 1e-19)."""
    a = torch.tensor([9e5, 1.1e6, 1e8, 1e10, 1e20], dtype=torch.float64).unsqueeze(1)
    x = (a + a.sqrt() * torch.tensor([-500.0, -9.0, -2.0, -0.1, 0.0, 0.1, 2.0, 9.0, 500.0], dtype=torch.float64)).float()

    def f(a: Any, x: Any) -> Any:
        return torch.special.gammainc(a, x), torch.special.gammaincc(a, x)

    below, above = f(a.float().double(), x.double())
    got_below, got_above = compiled(f, target="reference")(a.float(), x)
    torch.testing.assert_close(got_below, below.float(), rtol=1e-6, atol=2e-19)
    torch.testing.assert_close(got_above, above.float(), rtol=1e-6, atol=1e-37)


def test_inverse_of_the_normal_distribution_from_the_smallest_share_on() -> None:
    p = torch.tensor(SHARES)
    f = torch.special.ndtri
    torch.testing.assert_close(compiled(f, target="reference")(p), f(p), rtol=2e-6, atol=1e-6, equal_nan=True)


def test_bessel_functions_of_double_precision_agree_to_double_precision() -> None:
    x = torch.linspace(-60, 60, 41, dtype=torch.float64)

    def f(x: Any) -> Any:
        return torch.special.i0(x), torch.special.i1e(x)

    torch.testing.assert_close(compiled(f, target="reference")(x), f(x), rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_a_volume_is_read_at_places_inside_and_outside(mode: str) -> None:
    made = torch.Generator().manual_seed(0)
    volume, grid = torch.randn(2, 3, 4, 5, 1, generator=made), torch.rand(2, 3, 2, 4, 3, generator=made) * 5 - 2.5

    def f(volume: Any, grid: Any) -> Any:
        kinds = product(("zeros", "border", "reflection"), (True, False))
        return [torch.nn.functional.grid_sample(volume, grid, mode, pad, align) for pad, align in kinds]

    torch.testing.assert_close(compiled(f, target="reference")(volume, grid), f(volume, grid), rtol=1e-5, atol=1e-5)
