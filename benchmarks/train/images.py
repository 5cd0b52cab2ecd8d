"""Networks over images, and their batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.train.sequences import Block
from tests.models.zoo import Block as Windows
from tests.models.zoo import resnet


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


def images(count: int, size: int) -> tuple[Tensor, Tensor]:
    """Images and classes."""
    return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))


class Resnet(nn.Module):
    """The zoo's ResNet of these depths and widths, with its classes as the result."""

    def __init__(self, depths: tuple[int, ...], kind: str, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.inner = resnet(depths, kind, widths)()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def convnext() -> nn.Module:
    """Four blocks of ConvNeXt at two sizes, and classes."""
    first, second = nn.Conv2d(3, 48, 4, 4), nn.Conv2d(48, 96, 2, 2)
    blocks = [ConvNextBlock(48), ConvNextBlock(48)], [ConvNextBlock(96), ConvNextBlock(96)]
    return nn.Sequential(first, *blocks[0], second, *blocks[1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


class Residual(nn.Module):
    """Two windows of 3x3 after norms of groups; the time adds to each channel between them."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.before, self.first = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.between, self.second = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.past = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(functional.silu(self.before(x))) + self.time(functional.silu(time))[:, :, None, None]
        return self.past(x) + self.second(functional.silu(self.between(y)))


class Mixing(nn.Module):
    """Attention among the places of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(8, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, columns = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(batch, 3, width // 32, 32, -1).transpose(-1, -2).unbind(1)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(-1, -2).reshape(batch, width, height, columns))


class DiffusionUnet(nn.Module):
    """The noise of an image at a time: residual blocks at two sizes, attention at the smaller one, joined by a resize and a concatenation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, time = width, 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            Residual(a, b, time) for a, b in ((width, width), (width, 2 * width), (2 * width, 2 * width), (3 * width, width))
        )
        self.mixing, self.norm = Mixing(2 * width), nn.GroupNorm(8, width)

    def forward(self, x: Tensor) -> Tensor:
        half = self.width // 2
        rate = torch.exp(torch.arange(half) * (-9.2 / half))
        phase = torch.arange(1, x.shape[0] + 1)[:, None] * 10.0 * rate
        time = self.time(torch.cat([phase.sin(), phase.cos()], 1))
        wide = self.blocks[0](self.first(x), time)
        low = self.mixing(self.blocks[1](self.down(wide), time))
        low = functional.interpolate(self.blocks[2](low, time), scale_factor=2.0, mode="nearest")
        return self.last(functional.silu(self.norm(self.blocks[3](torch.cat([low, wide], 1), time))))


class BilinearUnet(nn.Module):
    """A U-Net of widths 32, 64 and 128 that goes up by bilinear resizes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.down = Windows(3, width), Windows(width, 2 * width)
        self.middle = Windows(2 * width, 4 * width)
        self.up, self.last = Windows(6 * width, 2 * width), Windows(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.down(functional.max_pool2d(a, 2))
        c = self.middle(functional.max_pool2d(b, 2))
        d = self.up(torch.cat([_doubled(c), b], 1))
        return self.head(self.last(torch.cat([_doubled(d), a], 1)))


def _doubled(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


def fields(count: int, channels: int) -> tuple[Tensor, Tensor]:
    """Images of 64x64 and target images with that many channels."""
    return torch.randn(count, 3, 64, 64), torch.randn(count, channels, 64, 64)
