"""The option memory_budget: forward keeps at most that share for backward, and gradients stay the same. All options are in the
guide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from tatami import backends
from tatami.backends.torch_compile import Options, read_options
from tatami.backends.torch_report import REPORTS
from tatami.core.diagnostic import TatamiError


class Wide(torch.nn.Module):
    """Layers whose activations are cheap to compute again from the products."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x)) * x.sigmoid()
        return x


def gradients(budget: float | None) -> tuple[list[torch.Tensor], int]:
    """The gradients, and the bytes that forward keeps."""
    torch._dynamo.reset()
    REPORTS.clear()
    torch.manual_seed(0)
    module, x = Wide(), torch.randn(64, 32)
    options = {} if budget is None else {"memory_budget": budget}
    torch.compile(module, backend="tatami", options=options)(x).square().sum().backward()
    (forward,) = (r for r in REPORTS if r.kind == "forward")
    said = re.findall(r"keeps [1-9]\d*(?:\.\d)? (?:bytes|KiB|MiB) for backward", backends.explain())
    assert bool(said) == (forward.kept_bytes > 0)
    found = [p.grad for p in module.parameters()]
    assert all(g is not None for g in found)
    return [g for g in found if g is not None], forward.kept_bytes


def test_a_share_of_the_memory_is_kept() -> None:
    wanted, most = gradients(None)
    again, half = gradients(0.5)
    none, nothing = gradients(0.0)
    assert most > 0 and half <= most / 2 and nothing == 0
    for other in (again, none):
        for g, w in zip(other, wanted, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5 * float(w.abs().max()))


def test_open_sizes_stay_open() -> None:
    """The bytes are told for the example: counting them makes no batch a graph of its own."""
    torch._dynamo.reset()
    REPORTS.clear()
    run = torch.compile(Wide(), backend="tatami", dynamic=True)
    for batch in (5, 6, 9):
        run(torch.randn(batch, 32)).sum().backward()
    assert [r.kind for r in REPORTS] == ["forward", "backward"]
    assert REPORTS[0].kept_bytes > 0 and REPORTS[0].kept_bytes % (5 * 4) == 0


def test_views_of_arguments_and_results_are_not_kept_twice() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w.t()).exp().t()

    torch._dynamo.reset()
    REPORTS.clear()
    x, w = torch.randn(6, 8), torch.randn(4, 8, requires_grad=True)
    torch.compile(f, backend="tatami")(x, w).sum().backward()
    assert [r.kept_bytes for r in REPORTS] == [0, 0]


@pytest.mark.parametrize("budget", [-0.1, 1.5, "half"])
def test_other_shares_are_refused(budget: object) -> None:
    with pytest.raises(TatamiError, match="memory_budget"):
        read_options({"memory_budget": budget}, None)


def test_the_guide_names_every_option() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "torch-compile.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE)
    assert sorted(named) == sorted(Options.__struct_fields__)


def test_the_memory_of_a_kept_view_counts_whole() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b, _ = (x @ w).chunk(3, 1)
        return a.sin() * b.sin()

    torch._dynamo.reset()
    REPORTS.clear()
    x, w = torch.randn(8, 8), torch.randn(8, 48, requires_grad=True)
    torch.compile(f, backend="tatami")(x, w).sum().backward()
    assert REPORTS[0].kept_bytes == 8 * 48 * 4
