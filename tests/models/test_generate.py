"""`model.generate` of `transformers` with `torch.compile(model.forward, backend="tatami")`: eager's tokens, few programs, all of
each graph in one program."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tatami import backends
from tatami.backends.torch_report import REPORTS
from tests.models.generating import KINDS, generated, model_of
from tests.shares import share

COUNT = 12
MOST = {"dynamic": 3, "static": 3}
"""Cache -> most graphs. The prompt is one. A token after it is another; with a dynamic cache PyTorch traces it for one length
first and for all lengths at the second, and a sliding window gives a static cache its own size before it is full."""


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    backends.reset()


def compiled(kind: str) -> Any:
    model = model_of(kind)
    model.forward = torch.compile(model.forward, backend="tatami")
    return model


@pytest.mark.parametrize(("kind", "cache"), share(list(KINDS), ("dynamic", "static"), of=2))
def test_tokens_are_eager_s(kind: str, cache: str) -> None:
    want = generated(model_of(kind), kind, cache, COUNT)
    assert len(set(want[0, -COUNT:].tolist())) >= COUNT // 3, "tokens that hardly change show little"
    model = compiled(kind)
    assert torch.equal(generated(model, kind, cache, COUNT), want)
    counters = torch._dynamo.utils.counters
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= MOST[cache]
    assert len(REPORTS) == counters["stats"]["unique_graphs"]
    for report in REPORTS:
        assert (report.programs, report.unsupported, report.refused) == (1, [], [])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_nothing_is_compiled_for_a_second_text(cache: str) -> None:
    model = compiled("qwen2")
    first = generated(model, "qwen2", cache, COUNT)
    before = len(REPORTS)
    assert torch.equal(generated(model, "qwen2", cache, COUNT), first)
    assert len(REPORTS) == before


def test_weights_of_bf16() -> None:
    """Tokens of bf16 may differ where two are nearly as likely: logits of one step are compared."""
    model = model_of("llama").bfloat16()
    tokens = torch.tensor([[5, 9, 33, 17]])
    with torch.no_grad():
        want = model(tokens).logits.float()
        exact = model_of("llama").double()(tokens).logits
        found = torch.compile(model, backend="tatami", fullgraph=True)(tokens).logits.float()
    assert (found - exact).norm() < 1.5 * (want - exact).norm()
    (report,) = REPORTS
    assert (report.programs, report.unsupported) == (1, [])
