"""Conversions by public tools of three networks with random weights: a CNN, a transformer, an LSTM.

Each function writes an .onnx file from an .onnx file. Quantisation is onnxruntime's, float16 onnxconverter-common's, the smaller
graph onnxslim's; optimised models are those that ONNX Runtime's session saves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from benchmarks.real.arrays import InputArray, arrays_of, normal, picture, tokens

VOCABULARY, WIDTH = 200, 48


class Cnn(nn.Module):
    """Convolutions of every kind that mobile networks have, a residual, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.Hardswish())
        self.depth = nn.Sequential(nn.Conv2d(24, 24, 3, 1, 1, groups=24), nn.BatchNorm2d(24), nn.ReLU6())
        self.point = nn.Sequential(nn.Conv2d(24, 24, 1), nn.BatchNorm2d(24), nn.LeakyReLU(0.1))
        self.wide = nn.Sequential(nn.Conv2d(24, 40, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2))
        self.last = nn.Linear(40, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.point(self.depth(x))
        return torch.softmax(self.last(self.wide(x).mean((2, 3))), -1)


class Transformer(nn.Module):
    """Two post-norm blocks over tokens, with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.packed = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.joined = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.wide = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(2))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids)
        batch, count, _ = x.shape
        hidden = torch.where(mask[:, None, None, :] == 0, -10000.0, 0.0)
        for k in range(2):
            q, key, v = self.packed[k](x).view(batch, count, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
            scores = torch.softmax(q @ key.transpose(-1, -2) / (WIDTH // 4) ** 0.5 + hidden, -1)
            x = self.norms[2 * k](x + self.joined[k]((scores @ v).transpose(1, 2).reshape(batch, count, WIDTH)))
            x = self.norms[2 * k + 1](x + self.narrow[k](nn.functional.gelu(self.wide[k](x))))
        return x


class Lstm(nn.Module):
    """Two layers, the first in both directions, and a head on the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.LSTM(20, 32, batch_first=True, bidirectional=True)
        self.last = nn.LSTM(64, 32, batch_first=True)
        self.head = nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.both(x)
        x, _ = self.last(x)
        return self.head(x[:, -1])


class Network:
    """A network, its inputs, the axes that its file leaves open, and sizes to run at."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        inputs: tuple[InputArray, ...],
        axes: Mapping[str, Mapping[int, str]],
        sizes: tuple[Mapping[str, int], ...],
    ) -> None:
        self.build, self.inputs, self.axes, self.sizes = build, inputs, axes, sizes

    def export(self, path: Path) -> None:
        torch.manual_seed(0)
        module = self.build().eval()
        example = {n: torch.from_numpy(a) for n, a in arrays_of(self.inputs, self.sizes[0], 1).items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, tuple(example.values()), path, input_names=list(example), output_names=["y"], dynamo=False,
                opset_version=17, dynamic_axes={n: dict(a) for n, a in self.axes.items()},
            )  # fmt: skip


def _ids(name: str, make: Any) -> InputArray:
    return InputArray(name, "int64", ("batch", "tokens"), make)


NETWORKS: dict[str, Network] = {
    "cnn": Network(
        Cnn, (InputArray("x", "float32", ("batch", 3, 64, 48), picture(-1)),), {"x": {0: "batch"}}, ({"batch": 1}, {"batch": 4})
    ),
    "transformer": Network(
        Transformer,
        (_ids("ids", tokens(VOCABULARY)), _ids("mask", lambda g, shape, s: np.arange(shape[1]) < shape[1] - g.integers(0, 4, (shape[0], 1)))),
        {"ids": {0: "batch", 1: "tokens"}, "mask": {0: "batch", 1: "tokens"}},
        ({"batch": 2, "tokens": 16}, {"batch": 1, "tokens": 37}),
    ),
    "lstm": Network(
        Lstm, (InputArray("x", "float32", ("batch", "steps", 20), normal()),), {"x": {0: "batch", 1: "steps"}},
        ({"batch": 2, "steps": 12}, {"batch": 1, "steps": 30}),
    ),
}  # fmt: skip


class _Feeds:
    """Calibration data as onnxruntime.quantization reads it."""

    def __init__(self, network: Network) -> None:
        self._left = [arrays_of(network.inputs, network.sizes[0], seed) for seed in range(20, 24)]

    def get_next(self) -> dict[str, Any] | None:
        return self._left.pop() if self._left else None


def _static(format_: str) -> Callable[[Network, Path, Path], None]:
    def convert(network: Network, source: Path, target: Path) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

        class Feeds(_Feeds, CalibrationDataReader):
            pass

        quantize_static(str(source), str(target), Feeds(network), quant_format=QuantFormat[format_])

    return convert


def _dynamic(network: Network, source: Path, target: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(source), str(target))


def _half(network: Network, source: Path, target: Path) -> None:
    from onnxconverter_common.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(str(source))), str(target))


def _saved(level: str) -> Callable[[Network, Path, Path], None]:
    def convert(network: Network, source: Path, target: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return convert


def _slim(network: Network, source: Path, target: Path) -> None:
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(str(source))), str(target))


CONVERSIONS: dict[str, tuple[str, Callable[[Network, Path, Path], None]]] = {
    "static QDQ": ("onnxruntime.quantization", _static("QDQ")),
    "static QOperator": ("onnxruntime.quantization", _static("QOperator")),
    "dynamic": ("onnxruntime.quantization", _dynamic),
    "float16": ("onnxconverter-common", _half),
    "saved basic": ("onnxruntime", _saved("BASIC")),
    "saved extended": ("onnxruntime", _saved("EXTENDED")),
    "saved all": ("onnxruntime", _saved("ALL")),
    "slim": ("onnxslim", _slim),
}
"""Conversions by name: the tool, and its function."""


def feeds_for(network: Network, path: Path) -> list[dict[str, Any]]:
    """A feed for each size, in the dtypes that the converted model takes."""
    kinds = {
        i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        for i in onnx.load(str(path), load_external_data=False).graph.input
    }
    feeds = [arrays_of(network.inputs, sizes, seed) for seed, sizes in enumerate(network.sizes, start=1)]
    return [{n: a.astype(kinds[n]) for n, a in feed.items() if n in kinds} for feed in feeds]
