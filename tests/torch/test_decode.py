"""A decoding step with a key-value cache that the model keeps: one compilation, the cache is written where it lies."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tatami import backends  # noqa: E402

WIDTH, HEADS, LENGTH, LAYERS, TOKENS = 32, 2, 128, 2, 29


class Block(nn.Module):
    """A transformer block whose attention appends to buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS))
        self.register_buffer("values", torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS))

    def forward(self, x: Any, position: Any) -> Any:
        b, t, w = x.shape
        q, k, v = (p.reshape(b, t, HEADS, -1).transpose(1, 2) for p in self.qkv(self.norm(x)).split(w, -1))
        self.store(k, v, position)
        seen = torch.arange(LENGTH) <= position
        y = functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen[None])
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))

    def store(self, k: Any, v: Any, position: Any) -> None:
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)


class SlicedBlock(Block):
    """The same with a position that is a Python number."""

    def store(self, k: Any, v: Any, position: Any) -> None:
        self.keys[:, :, position : position + 1] = k
        self.values[:, :, position : position + 1] = v


class Decoder(nn.Module):
    """A small GPT: token and position embeddings, blocks, a head that shares the token embedding."""

    def __init__(self, block: type[Block]) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, token: Any, position: Any) -> Any:
        x = self.tokens(token) + self.positions.weight[position]
        for block in self.blocks:
            x = block(x, position)
        return self.norm(x) @ self.tokens.weight.T


@pytest.mark.parametrize(("block", "graphs"), [(Block, 1), (SlicedBlock, 2)])
def test_a_hundred_tokens_are_decoded_without_recompiling_and_without_copying_the_cache(
    block: type[Block], graphs: int
) -> None:
    module = Decoder(block).eval()
    eager = copy.deepcopy(module)
    run = torch.compile(module, backend=backends.torch_backend, fullgraph=True, options={"fallback": False})
    places = {name: b.data_ptr() for name, b in module.named_buffers()}
    token = torch.tensor([[3]])
    with torch.no_grad():
        for k in range(100):
            position = torch.tensor([k]) if block is Block else k
            logits = run(token, position)
            wanted = eager(token, position)
            torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)
            token = wanted[:, -1].argmax(-1, keepdim=True)
    for (_, mine), (_, theirs) in zip(module.named_buffers(), eager.named_buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert {name: b.data_ptr() for name, b in module.named_buffers()} == places
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs, "a number is constant once, then a size"
    cache = HEADS * LENGTH * (WIDTH // HEADS) * 4
    for report in backends.torch_reports():
        assert not report.copies and not report.unsupported and not report.refused
        for program in report.alive:
            assert all(b["bytes"] < cache for b in program.memory["buffers"]), "no copy of the cache in the arena"
            assert not program.memory["copies"]
