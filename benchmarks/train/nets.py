"""The networks whose training step is timed: seeded weights, a batch, a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.train.images import BilinearUnet, DiffusionUnet, Resnet, Vit, convnext, fields, images
from benchmarks.train.sequences import Bert, Experts, Gpt, Lstm, LstmWords, Sound, frames, tokens
from tests.models.zoo import UNet


@dataclass(frozen=True)
class Net:
    """A network: `build` makes the module, `batch` its arguments and the target, `loss` the number from result and target.
    `unrolled`: Dynamo hands the steps of its recurrent layers to the compiler instead of leaving the layers in PyTorch."""

    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    unrolled: bool = False


class GraphNet(nn.Module):
    """Messages along edges, added up at their ends, in three layers; the edges are drawn with the module."""

    def __init__(self, nodes: int, edges: int, width: int) -> None:
        super().__init__()
        self.register_buffer("ends", torch.randint(0, nodes, (2, edges)))
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.ends[0], self.ends[1]
        for message, update, norm in zip(self.messages, self.updates, self.norms, strict=True):
            sent = functional.relu(message(torch.cat([x[source], x[target]], 1)))
            held = torch.zeros_like(x).index_add(0, target, sent)
            x = norm(x + functional.relu(update(torch.cat([x, held], 1))))
        return self.head(x)


def _mlp() -> nn.Module:
    def layer(a: int, b: int) -> tuple[nn.Module, ...]:
        return nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()

    return nn.Sequential(*layer(784, 1024), *layer(1024, 1024), nn.Linear(1024, 10))


def _rows(count: int, width: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, width), torch.randint(0, 10, (count,))


NETS: dict[str, Net] = {
    "resnet18": Net(lambda: Resnet((2, 2, 2, 2), "basic", (64, 128, 256, 512)), lambda: images(8, 32)),
    "resnet50": Net(lambda: Resnet((3, 4, 6, 3), "bottleneck", (256, 512, 1024, 2048)), lambda: images(4, 64)),
    "unet": Net(UNet, lambda: fields(2, 2), functional.mse_loss),
    "unet_bilinear": Net(BilinearUnet, lambda: fields(2, 2), functional.mse_loss),
    "diffusion": Net(lambda: DiffusionUnet(64), lambda: fields(2, 3), functional.mse_loss),
    "gpt": Net(lambda: Gpt(4, 256, 128, 512), lambda: tokens(4, 128, 512)),
    "gpt_85m": Net(lambda: Gpt(12, 768, 64, 512), lambda: tokens(1, 64, 512)),
    "bert": Net(lambda: Bert(4, 256, 64, 2048), lambda: tokens(4, 64, 2048)),
    "vit": Net(lambda: Vit(192, 6), lambda: images(8, 64)),
    "convnext": Net(convnext, lambda: images(8, 64)),
    "wav2vec": Net(lambda: Sound(128, 192, 2), lambda: (torch.randn(2, 1, 16000), torch.randint(0, 10, (2,)))),
    "experts": Net(lambda: Experts(128), lambda: _rows(512, 128)),
    "mlp": Net(_mlp, lambda: _rows(128, 784)),
    "lstm": Net(lambda: Lstm(64, 256), lambda: frames(16, 50, 64)),
    "lstm_words": Net(lambda: LstmWords(256, 512), lambda: tokens(8, 12, 512), unrolled=True),
    "graph_net": Net(lambda: GraphNet(1024, 4096, 64), lambda: (torch.randn(1024, 64), torch.randint(0, 10, (1024,)))),
}
"""Networks by name."""


def prepared(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """The module in training, its argument and target: the same in every process."""
    torch.manual_seed(0)
    module = NETS[name].build().train()
    return (module, *NETS[name].batch())
