"""Nets of kinds that `transformers` lacks: message passing on a graph, a speech recogniser with convolutions, attention and
a recurrent layer, an image generator with modulated convolutions, and a detector that ends in a choice of boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attend(nn.Module):
    """Messages along the edges, weighted by a softmax over the edges that reach one node (a graph attention layer)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, outputs)
        self.score = nn.Linear(2 * outputs, 1)
        self.own = nn.Linear(inputs, outputs)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        sent = self.project(nodes)
        pair = torch.cat([sent[source], sent[target]], 1)
        weight = torch.exp(torch.tanh(self.score(pair)))
        total = torch.zeros_like(sent[:, :1]).index_add(0, target, weight)
        received = torch.zeros_like(sent).index_add(0, target, weight * sent[source])
        return functional.elu(self.own(nodes) + received / (total + 1e-6))


class GraphNet(nn.Module):
    def __init__(self, features: int = 16, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attend(features if i == 0 else width, width) for i in range(depth))
        self.head = nn.Linear(2 * width, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            nodes = layer(nodes, edges[0], edges[1])
        whole = torch.cat([nodes.mean(0, keepdim=True), nodes.amax(0, keepdim=True)], 1)
        return self.head(whole)


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, a gated depthwise convolution, half a feed-forward."""

    def __init__(self, width: int, heads: int, reach: int) -> None:
        super().__init__()
        self.heads = heads
        self.first = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        self.norm, self.mix, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate_norm, self.gate = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.deep = nn.Conv1d(width, width, reach, padding=reach // 2, groups=width)
        self.deep_norm, self.point = nn.GroupNorm(4, width), nn.Conv1d(width, width, 1)
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        batch, steps, width = x.shape
        parts = self.mix(self.norm(x)).reshape(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
        gated = functional.glu(self.gate(self.gate_norm(x).transpose(1, 2)), 1)
        x = x + self.point(functional.silu(self.deep_norm(self.deep(gated)))).transpose(1, 2)
        return x + 0.5 * self.last(x)


class Conformer(nn.Module):
    """Sound features to classes per step: subsampling convolutions, Conformer blocks, an LSTM in both directions."""

    def __init__(self, features: int = 40, width: int = 64) -> None:
        super().__init__()
        self.sample = nn.Sequential(
            nn.Conv1d(features, width, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(width, width, 3, stride=2, padding=1)
        )
        self.blocks = nn.Sequential(*(ConformerBlock(width, 4, 7) for _ in range(2)))
        self.recur = nn.LSTM(width, width // 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(width, 30)

    def forward(self, sound: Tensor) -> Tensor:
        steps = self.blocks(self.sample(sound).transpose(1, 2))
        return self.head(self.recur(steps)[0])


class Modulated(nn.Module):
    """A convolution whose input channels a style scales and whose output is brought back to unit variance; noise and a
    blurred upsampling where it widens the picture."""

    blur: Tensor
    noise: Tensor

    def __init__(self, inputs: int, outputs: int, style: int, size: int, widens: bool) -> None:
        super().__init__()
        self.widens = widens
        self.affine, self.conv = nn.Linear(style, inputs), nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        row = torch.tensor([1.0, 3.0, 3.0, 1.0]) / 8
        self.register_buffer("blur", (row[:, None] * row[None]).expand(inputs, 1, 4, 4).clone())
        self.register_buffer("noise", torch.randn(1, 1, size, size, generator=torch.Generator().manual_seed(size)))
        self.strength = nn.Parameter(torch.full((1,), 0.1))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        scale = self.affine(style) + 1
        x = x * scale[:, :, None, None]
        if self.widens:
            x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = functional.conv2d(functional.pad(x, (1, 2, 1, 2)), self.blur, groups=x.shape[1])
        power = torch.einsum("oikl,bi->bo", self.conv.weight.square(), scale.square())
        x = self.conv(x) * torch.rsqrt(power + 1e-8)[:, :, None, None]
        return functional.leaky_relu(x + self.strength * self.noise, 0.2) * 2**0.5


class StyleNet(nn.Module):
    def __init__(self, latent: int = 64, width: int = 48, levels: int = 3) -> None:
        super().__init__()
        self.mapping = nn.Sequential(nn.Linear(latent, latent), nn.LeakyReLU(0.2), nn.Linear(latent, latent))
        self.start = nn.Parameter(torch.randn(1, width, 4, 4, generator=torch.Generator().manual_seed(0)))
        sizes = [4 * 2**i for i in range(levels + 1)]
        self.layers = nn.ModuleList(Modulated(width, width, latent, s, i > 0) for i, s in enumerate(sizes))
        self.to_rgb = nn.ModuleList(nn.Conv2d(width, 3, 1) for _ in sizes)

    def forward(self, z: Tensor) -> Tensor:
        style = self.mapping(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8))
        x = self.start.expand(z.shape[0], -1, -1, -1)
        picture = None
        for layer, head in zip(self.layers, self.to_rgb, strict=True):
            x = layer(x, style)
            shown = head(x)
            picture = shown if picture is None else shown + functional.interpolate(picture, scale_factor=2.0, mode="nearest")
        assert picture is not None
        return picture


class Detector(nn.Module):
    """Boxes of a picture: a small backbone, an encoder and a decoder of learnt queries, then the queries whose scores are
    the greatest, as corners with score and class."""

    def __init__(self, width: int = 64, queries: int = 40, classes: int = 10, kept: int = 12) -> None:
        super().__init__()
        self.kept = kept
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 7, stride=4, padding=3),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Conv2d(32, width, 3, stride=2, padding=1),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.place = nn.Parameter(torch.randn(16, width, generator=torch.Generator().manual_seed(1)))
        self.queries = nn.Parameter(torch.randn(queries, width, generator=torch.Generator().manual_seed(2)))
        self.encoder = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoderLayer(width, 4, 2 * width, batch_first=True, norm_first=True)
        self.classes, self.boxes = nn.Linear(width, classes), nn.Linear(width, 4)

    def forward(self, pixel_values: Tensor) -> Tensor:
        cells = self.backbone(pixel_values).flatten(2).transpose(1, 2) + self.place
        found = self.decoder(self.queries.expand(cells.shape[0], -1, -1), self.encoder(cells))
        chances = self.classes(found).softmax(-1)
        centre, extent = self.boxes(found).sigmoid().split(2, -1)
        corners = torch.cat([centre - extent / 2, centre + extent / 2], -1)
        score, label = chances.max(-1)
        best, index = score.topk(self.kept, dim=1)
        chosen = corners.gather(1, index[..., None].expand(-1, -1, 4))
        return torch.cat([chosen, best[..., None], label.gather(1, index)[..., None].to(best.dtype)], -1)
