"""The networks whose training step is timed: seeded weights, a batch, a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.zoo import UNet, resnet


@dataclass(frozen=True)
class Net:
    """A network: `build` makes the module, `batch` its arguments and the target, `loss` the number from result and target."""

    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]


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


class Vit(nn.Module):
    """A transformer over patches of 8x8."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.place = nn.Parameter(torch.zeros(64, width))
        self.blocks = nn.Sequential(*(Block(width, 3, False) for _ in range(layers)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.place).mean(1))


class ConvNextBlock(nn.Module):
    """A depthwise window of 7x7, a norm of channels, two wide layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.window, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.window(x).permute(0, 2, 3, 1))
        return x + self.narrow(functional.gelu(self.wide(y))).permute(0, 3, 1, 2)


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


def images(count: int, size: int) -> tuple[Tensor, Tensor]:
    """Images and classes."""
    return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))


def _tokens(count: int, length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    words = torch.randint(0, vocabulary, (count, length + 1))
    return words[:, :-1].contiguous(), words[:, 1:].reshape(-1)


class Resnet18(nn.Module):
    """The zoo's ResNet-18 with its classes as the result."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = resnet((2, 2, 2, 2), "basic", (64, 128, 256, 512))()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def _convnext() -> nn.Module:
    first, second = nn.Conv2d(3, 48, 4, 4), nn.Conv2d(48, 96, 2, 2)
    blocks = [ConvNextBlock(48), ConvNextBlock(48)], [ConvNextBlock(96), ConvNextBlock(96)]
    return nn.Sequential(first, *blocks[0], second, *blocks[1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


def _mlp() -> nn.Module:
    def layer(a: int, b: int) -> tuple[nn.Module, ...]:
        return nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()

    return nn.Sequential(*layer(784, 1024), *layer(1024, 1024), nn.Linear(1024, 10))


def _rows(count: int, width: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, width), torch.randint(0, 10, (count,))


def _fields() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 64, 64), torch.randn(2, 2, 64, 64)


NETS: dict[str, Net] = {
    "resnet18": Net(Resnet18, lambda: images(8, 32), functional.cross_entropy),
    "unet": Net(UNet, _fields, functional.mse_loss),
    "gpt": Net(lambda: Gpt(4, 256, 128, 512), lambda: _tokens(4, 128, 512), functional.cross_entropy),
    "vit": Net(lambda: Vit(192, 6), lambda: images(8, 64), functional.cross_entropy),
    "convnext": Net(_convnext, lambda: images(8, 64), functional.cross_entropy),
    "experts": Net(lambda: Experts(128), lambda: _rows(512, 128), functional.cross_entropy),
    "mlp": Net(_mlp, lambda: _rows(128, 784), functional.cross_entropy),
}
"""Networks by name."""


def prepared(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """The module in training, its argument and target: the same in every process."""
    torch.manual_seed(0)
    module = NETS[name].build().train()
    return (module, *NETS[name].batch())
