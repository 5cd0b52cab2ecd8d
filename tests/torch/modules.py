"""Small modules of many kinds, each with inputs for a batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head attention over (batch, sequence, width), causal."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, w = x.shape
        q, k, v = (p.reshape(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).split(w, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, w))


class Embedded(nn.Module):
    """Token and position embeddings, a layer norm, a projection back."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.positions = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.norm(x) @ self.tokens.weight.T


class Cell(nn.Module):
    """Three steps of an LSTM cell."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], 6)
        for t in range(3):
            h, c = self.cell(x[:, t], (h, c))
        return h * c


class InPlace(nn.Module):
    """Writes into parts of a value of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, 1:3] *= 2
        y.add_(1)
        y[:, 0] = x[:, -1]
        y.t().clamp_(min=-1)
        return y.relu_()


class Views(nn.Module):
    """Results that are views: of an argument, of each other, of a value made here."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x.t(), y[:, 1:], y.view(-1), x.unsqueeze(0).expand(2, -1, -1), y.T.contiguous().T


class Integers(nn.Module):
    """Integer arithmetic, comparisons, gathers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = (x * 7).to(torch.int64)
        b = a // 3 + a % 5 - (a >> 1) * (a & 6)
        order = b.argsort(dim=1, stable=True)
        return b.gather(1, order).to(torch.float32) / (1 + a.abs().sum(dim=1, keepdim=True))


def net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.LayerNorm(10), nn.Linear(10, 3), nn.Softmax(-1))


def transposed() -> nn.Module:
    return nn.Sequential(nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2))


def floats(*shape: int) -> Callable[[int, torch.dtype], tuple[torch.Tensor, ...]]:
    return lambda batch, dtype: (torch.randn(batch, *shape, dtype=dtype),)


def tokens(batch: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 11, (batch, 7)),)


CASES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "mlp": (mlp, floats(6)),
    "conv": (net, floats(3, 13, 13)),
    "conv_transposed": (transposed, floats(3, 6, 6)),
    "attention": (Attention, floats(7, 16)),
    "embedding": (Embedded, tokens),
    "lstm_cell": (Cell, floats(3, 4)),
    "in_place": (InPlace, floats(5)),
    "views": (Views, floats(5)),
    "integers": (Integers, floats(9)),
}
