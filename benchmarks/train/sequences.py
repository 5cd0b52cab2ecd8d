"""Networks over tokens, sounds and steps of time, and their batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """A block of a transformer: attention and two wide layers, each after a norm."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.before(x)).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Gpt(nn.Module):
    """A causal transformer over tokens."""

    def __init__(self, layers: int, width: int, tokens: int, vocabulary: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, max(1, width // 64), True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Experts(nn.Module):
    """Four experts, of which each token takes the best two, weighted."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router, self.head = nn.Linear(width, 4), nn.Linear(width, 10)
        self.up, self.down = (nn.Parameter(torch.randn(4, *s) * 0.05) for s in ((width, 4 * width), (4 * width, width)))

    def forward(self, x: Tensor) -> Tensor:
        best, which = self.router(x).topk(2, dim=-1)
        weight = torch.zeros(len(x), 4).scatter(1, which, best.softmax(-1))
        each = torch.einsum("tew,ewd->ted", functional.gelu(torch.einsum("td,edw->tew", x, self.up)), self.down)
        return self.head(x + (each * weight.unsqueeze(-1)).sum(1))


def tokens(count: int, length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Rows of tokens and, row after row, the token that follows each."""
    words = torch.randint(0, vocabulary, (count, length + 1))
    return words[:, :-1].contiguous(), words[:, 1:].reshape(-1)


class Bert(nn.Module):
    """A transformer over tokens of which the last quarter of each second row is padding: its mask adds to the scores."""

    def __init__(self, layers: int, width: int, tokens: int, vocabulary: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        layer = {"dim_feedforward": 4 * width, "activation": "gelu", "batch_first": True, "dropout": 0.1}
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, width // 64, **layer) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        rows, places = torch.arange(tokens.shape[0]), torch.arange(tokens.shape[1])
        padding = (rows[:, None] % 2 == 1) & (places >= tokens.shape[1] * 3 // 4)
        x = self.dropout(self.norm(self.token(tokens) + self.place.weight[: tokens.shape[1]]))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return self.head(x).flatten(0, 1)


class Sound(nn.Module):
    """Windows over a sound as in wav2vec 2.0 (320 samples a frame), a grouped window of places, transformer blocks, a frame's class."""

    def __init__(self, channels: int, width: int, layers: int) -> None:
        super().__init__()
        sizes = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
        inputs = [1] + [channels] * (len(sizes) - 1)
        windows = [nn.Conv1d(i, channels, size, step, bias=False) for i, (size, step) in zip(inputs, sizes, strict=True)]
        self.windows = nn.Sequential(windows[0], nn.GroupNorm(channels, channels), nn.GELU())
        for window in windows[1:]:
            self.windows.extend((window, nn.GELU()))
        self.norm, self.wide = nn.LayerNorm(channels), nn.Linear(channels, width)
        self.place = nn.Conv1d(width, width, 31, padding=15, groups=16)
        self.blocks = nn.Sequential(*(Block(width, width // 64, False) for _ in range(layers)))
        self.head = nn.Linear(width, 10)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.wide(self.norm(self.windows(sound).transpose(1, 2)))
        x = x + functional.gelu(self.place(x.transpose(1, 2))).transpose(1, 2)
        return self.head(self.blocks(x)).mean(1)


class Lstm(nn.Module):
    """A recurrent layer over frames, and a class of the last one."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(inputs, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class LstmWords(nn.Module):
    """A language model of two recurrent layers."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.cells = nn.LSTM(width, width, num_layers=2, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.cells(self.token(tokens))[0]).flatten(0, 1)


def frames(count: int, length: int, width: int) -> tuple[Tensor, Tensor]:
    """Rows of frames and classes."""
    return torch.randn(count, length, width), torch.randint(0, 10, (count,))
