"""The gradient of attention over blocks of keys: PyTorch's numbers, memory that grows with the sequence, and a step of training."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from tatami import backends
from tatami.api import prepare
from tatami.backends import torch_compile
from tatami.execution.ir import BufferInfo
from tatami.torch.aten import attention
from tests.torch.modules import Attention


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=backends.torch_backend, fullgraph=True, options={"fallback": False, **options})


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", 16)
    monkeypatch.setattr(attention, "WHOLE", 16)
    monkeypatch.setattr(attention, "WIDE", 8)


def gradients(attend: Any, operands: tuple[Any, ...], mask: Any, causal: bool) -> list[Any]:
    given = [x.detach().requires_grad_() for x in operands]
    out = attend(*given, attn_mask=mask, is_causal=causal)
    return list(torch.autograd.grad(out, given, torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype)))


CASES = {
    "a mask of truth over heads in common": ("float32", (2, 3, 20), 45, 32, torch.bool),
    "a mask that is added": ("bfloat16", (1, 2, 7), 33, 40, torch.float32),
}


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("name", CASES)
def test_blocks_of_keys_give_the_gradients_of_all(name: str) -> None:
    kind, rows, keys, depth, masked = CASES[name]
    dtype = getattr(torch, kind)
    q = torch.randn(*rows, depth).to(dtype)
    k, v = (torch.randn(*rows[:2], keys, depth).to(dtype) for _ in range(2))
    seen = torch.randn(rows[0], 1, rows[2], keys)
    mask = seen > -1 if masked == torch.bool else seen.to(dtype)
    exact = mask if masked == torch.bool else mask.double()
    attend = functional.scaled_dot_product_attention
    wanted = gradients(attend, tuple(x.double() for x in (q, k, v)), exact, False)
    for got, want in zip(gradients(compiled(attend), (q, k, v), mask, False), wanted, strict=True):
        assert (got.double() - want).norm() / want.norm() < {"float32": 1e-6, "bfloat16": 1e-2}[kind]


@pytest.mark.parametrize("added", [False, True], ids=["a mask of truth", "a mask that is added"])
@pytest.mark.parametrize("blocks", [False, True], ids=["one product of all keys", "blocks of keys"])
def test_a_row_that_sees_no_key_gives_zero_and_takes_no_gradient(
    added: bool, blocks: bool, request: pytest.FixtureRequest
) -> None:
    if blocks:
        request.getfixturevalue("short_blocks")
    seen = torch.rand(2, 1, 20, 40) > 0.5
    seen[0, 0, [3, 11]] = False
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf")) if added else seen
    operands: tuple[Any, ...] = tuple(torch.randn(2, 3, n, 16) for n in (20, 40, 40))
    attend: Any = functional.scaled_dot_product_attention
    own = compiled(attend)
    for got in (own(*operands, mask), own(*(x.clone().requires_grad_() for x in operands), mask).detach()):
        torch.testing.assert_close(got, attend(*operands, mask), rtol=1e-5, atol=1e-6)
        assert not got[0, :, [3, 11]].any()
    found = gradients(own, operands, mask, False)
    for got, want in zip(found, gradients(attend, operands, mask, False), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not found[0][0, :, [3, 11]].any()


def arena_bytes(monkeypatch: pytest.MonkeyPatch, length: int) -> dict[str, int]:
    """Bytes of the arenas of all programs of the gradient's graph, by target."""
    found: dict[str, int] = {}

    def prepared(module: Any, **options: Any) -> Any:
        for target in ("cpu", "sm90"):
            programs = prepare(module, target=target).stages["execution"].programs.values()
            found[target] = sum(max((end_of(b) for b in p.buffers), default=0) for p in programs)
        return prepare(module, **options)

    monkeypatch.setattr(torch_compile, "prepare", prepared)
    torch._dynamo.reset()  # else the second length is a symbol
    operands = tuple(torch.randn(1, 1, length, 16) for _ in range(3))
    gradients(compiled(functional.scaled_dot_product_attention), operands, None, True)
    return found


def end_of(buffer: BufferInfo) -> int:
    size = buffer.elements.as_int()
    assert size is not None
    return buffer.arena_offset + size * buffer.dtype.itemsize if buffer.kind == "arena" and not buffer.parent else 0


def test_memory_of_the_gradient_grows_with_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = (arena_bytes(monkeypatch, n) for n in (6000, 12000))
    for target, bytes_ in long.items():
        assert 0 < bytes_ < 2.1 * short[target] and bytes_ < 6000 * 6000 * 4, target


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.layers(self.between(x))


@pytest.mark.usefixtures("short_blocks")
def test_a_step_of_training_is_pytorchs() -> None:
    model = nn.Sequential(nn.Embedding(13, 16), Block(16), Block(16), nn.Linear(16, 13)).double()
    tokens = torch.randint(13, (2, 41))
    models = [model, copy.deepcopy(model)]
    for net, run in zip(models, (compiled(models[0]), models[1]), strict=True):
        optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
        loss = functional.cross_entropy(run(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimiser.step()
    assert not any(r.unsupported or r.refused for r in backends.torch_reports())
    for ours, theirs in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
