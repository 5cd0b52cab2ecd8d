"""Mixtures of experts: products of groups of rows, and counts of the rows of each expert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tatami.backends import torch_reports

transformers = pytest.importorskip("transformers")
pytest.importorskip("transformers.integrations.moe")  # its operator for a CPU


def _compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(f, backend="tatami", options={"threads": 1})
    return compiled


@pytest.mark.parametrize(("rows", "is_left"), [(2, False), (15, False), (16, True)])
def test_groups_of_few_rows_are_multiplied_here(rows: int, is_left: bool) -> None:
    """The last rows belong to no group, and are 0."""
    x, w = torch.randn(rows, 24), torch.randn(4, 24, 20)
    ends = torch.tensor([0, 1, 1, rows - 1], dtype=torch.int32)
    grouped = torch.ops.transformers.grouped_mm_fallback
    got = _compiled(lambda x, w, ends: grouped(x.relu(), w, ends) + 1)(x, w, ends)
    torch.testing.assert_close(got, grouped(x.relu(), w, ends) + 1)
    assert any("grouped_mm" in str(u) for u in torch_reports()[-1].unsupported) is is_left


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 3), (7, -1.5, 2), (129, -0.3, 0.7)])
def test_values_are_counted_in_parts_of_a_range(bins: int, low: float, high: float, dtype: torch.dtype) -> None:
    for x in (torch.randn(3, 500, dtype=dtype), torch.randint(-2, 6, (900,)).to(dtype), torch.zeros(0, dtype=dtype)):
        x.flatten()[:: max(1, x.numel() // 7)] = float("nan")
        count = _compiled(lambda x: torch.histc(x, bins, low, high))(x)
        assert torch.equal(count, torch.histc(x, bins, low, high)) and count.dtype == dtype
    assert not torch_reports()[-1].unsupported


def test_a_token_passes_its_experts_in_one_program() -> None:
    config = transformers.Qwen2MoeConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, intermediate_size=48, vocab_size=50,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
        decoder_sparse_step=1,
    )  # fmt: skip
    model = transformers.Qwen2MoeModel(config).eval()
    tokens = torch.tensor([[7, 3]])
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape))
        wanted = model(input_ids=tokens, use_cache=False).last_hidden_state
        got = _compiled(model)(input_ids=tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    report = torch_reports()[-1]
    assert report.programs == 1 and not report.unsupported
