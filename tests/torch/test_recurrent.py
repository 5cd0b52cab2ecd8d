"""Recurrent layers in training: with `allow_rnn` Dynamo hands them to us, unrolled, and forward is computed once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tatami.backends import torch_compile  # noqa: E402
from tatami.backends.torch_report import REPORTS  # noqa: E402

STEPS = 3


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_layer_trains_as_in_eager_and_forward_is_computed_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: dict[str, Counter[str]] = {}
    compile_graph = torch_compile._compile

    def seen(gm: Any, *args: Any, **named: Any) -> Any:
        graphs[named["kind"]] = Counter(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
        return compile_graph(gm, *args, **named)

    monkeypatch.setattr(torch_compile, "_compile", seen)
    torch._dynamo.reset()
    REPORTS.clear()
    torch.manual_seed(0)
    net = getattr(torch.nn, kind)(4, 6, batch_first=True)
    x = torch.randn(2, STEPS, 4, requires_grad=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        found = [gradients(f, net, x) for f in (net, torch.compile(net, backend="tatami", fullgraph=True))]
    for eager, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-5)
    assert [(r.kind, r.programs, r.unsupported, r.refused) for r in REPORTS] == [
        ("forward", 1, [], []),
        ("backward", 1, [], []),
    ]
    assert not {"aten.sigmoid.default", "aten.tanh.default", "aten.addmm.default"} & graphs["backward"].keys()
    assert graphs["backward"]["aten.mm.default"] <= 2 * STEPS + 2


def gradients(f: Any, net: Any, x: Any) -> list[Any]:
    """Results and gradients of a call."""
    results, _ = f(x)
    return [results, *torch.autograd.grad(results.square().sum(), [x, *net.parameters()])]
