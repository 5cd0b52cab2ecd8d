"""Models with open sizes, one thread: Tatami's one program for every size against ONNX Runtime's default session.

    python -m benchmarks.open_sizes                     all groups
    python -m benchmarks.open_sizes lstm conv --fixed   some groups, and the program of the same sizes fixed beside them

A line per call: model, sizes, microseconds of ONNX Runtime and Tatami, ratio (ONNX Runtime / Tatami, above 1 Tatami is faster),
the largest difference of the results. With --fixed the last column is open program / fixed program: 1 where open sizes cost
nothing. The contestants take turns in blocks of calls and the least of all blocks counts, since other work on the machine only
adds time. Models are made here by torch.onnx with random weights; torch, onnx and onnxruntime are needed.
"""

from __future__ import annotations

import argparse
import io
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import torch

import tatami as tt

BLOCK_SECONDS = 0.003
"""Time of a block of calls: many calls of a short program, one of a long one. Short, so that some blocks meet nothing else."""
ROUNDS = 60
"""Blocks of each contestant."""


@dataclass
class Case:
    """A module with the axes of its input that are open, and the shapes it is called with."""

    name: str
    module: torch.nn.Module
    open: dict[int, str]
    shapes: Sequence[tuple[int, ...]]
    sizes: dict[str, Any] = field(default_factory=dict)


class Recurrent(torch.nn.Module):
    def __init__(self, kind: str, hidden: int, both: bool) -> None:
        super().__init__()
        self.layer = getattr(torch.nn, kind)(hidden, hidden, bidirectional=both)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)[0]
        return y


class VoiceDetector(torch.nn.Module):
    """Convolutions over a window of sound, one step of an LSTM, a probability: the shape of a voice activity detector."""

    def __init__(self) -> None:
        super().__init__()
        widths = [129, 128, 64, 64, 128]
        strides = [1, 2, 2, 1]
        layers: list[torch.nn.Module] = []
        for a, b, s in zip(widths, widths[1:], strides):
            layers += [torch.nn.Conv1d(a, b, 3, s, 1), torch.nn.ReLU()]
        self.encoder = torch.nn.Sequential(*layers)
        self.layer = torch.nn.LSTM(128, 128)
        self.head = torch.nn.Conv1d(128, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.encoder(x).mean(2).unsqueeze(0)
        y = torch.relu(self.layer(h)[0][0]).unsqueeze(2)
        return torch.sigmoid(self.head(y))


class Tokens(torch.nn.Module):
    """Patches of an image as rows of a transformer."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.patches(x).flatten(2).transpose(1, 2)
        return y


class CutTokens(torch.nn.Module):
    """Patches cut by reshaping, normalised, and multiplied by a matrix."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.size = size
        self.norm = torch.nn.LayerNorm(3 * size * size)
        self.layer = torch.nn.Linear(3 * size * size, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        p, side = self.size, x.shape[2] // self.size
        x = x.reshape(-1, 3, side, p, side, p).permute(0, 2, 4, 3, 5, 1).reshape(-1, side * side, 3 * p * p)
        y: torch.Tensor = self.layer(self.norm(x))
        return y


class FirstLayer(torch.nn.Module):
    """Patches with a class token and positions, and the first norm and product of a transformer."""

    def __init__(self, size: int, width: int, places: int, stride: int = 0) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, size, stride or size, size // 2 if stride else 0)
        self.token = torch.nn.Parameter(torch.randn(1, 1, width))
        self.positions = torch.nn.Parameter(torch.randn(1, places + 1, width))
        self.norm = torch.nn.LayerNorm(width)
        self.layer = torch.nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        y: torch.Tensor = self.layer(self.norm(x))
        return y


class Merged(torch.nn.Module):
    """Four neighbouring tokens joined, normalised, and halved by a matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(4 * width)
        self.layer = torch.nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x[:, i::2, j::2] for j in range(2) for i in range(2)]
        y: torch.Tensor = self.layer(self.norm(torch.cat(parts, -1)))
        return y


def recurrent(kind: str) -> Iterator[Case]:
    for hidden in (64, 128, 256, 512):
        for both in (False, True):
            shapes = [(t, b, hidden) for b in (1, 8) for t in (1, 5, 20, 50)]
            name = f"{kind} {hidden}{' both ways' if both else ''}"
            yield Case(name, Recurrent(kind.upper(), hidden, both), {0: "steps", 1: "batch"}, shapes)


def voice() -> Iterator[Case]:
    yield Case("voice detector", VoiceDetector(), {0: "batch"}, [(1, 129, 4), (8, 129, 4)])


def block(*layers: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.Sequential(*layers)


def convolutions() -> Iterator[Case]:
    conv = torch.nn.Conv2d
    relu = torch.nn.ReLU
    every = {0: "batch", 2: "height", 3: "width"}
    table: list[tuple[str, torch.nn.Module, tuple[int, ...]]] = [
        ("3x3 3-32 /2", block(conv(3, 32, 3, 2, 1), relu()), (1, 3, 224, 224)),
        ("7x7 3-64 /2", block(conv(3, 64, 7, 2, 3), relu()), (1, 3, 224, 224)),
        ("3x3 64-64", block(conv(64, 64, 3, 1, 1), relu()), (1, 64, 56, 56)),
        ("3x3 128-128", block(conv(128, 128, 3, 1, 1), relu()), (1, 128, 28, 28)),
        ("3x3 256-256", block(conv(256, 256, 3, 1, 1), relu()), (1, 256, 14, 14)),
        ("3x3 128-256 /2", block(conv(128, 256, 3, 2, 1), relu()), (1, 128, 28, 28)),
        ("1x1 64-256", block(conv(64, 256, 1), relu()), (1, 64, 56, 56)),
        ("1x1 256-64", block(conv(256, 64, 1), relu()), (1, 256, 56, 56)),
        ("1x1 512-512", block(conv(512, 512, 1), relu()), (1, 512, 14, 14)),
        ("5x5 32-32", block(conv(32, 32, 5, 1, 2), relu()), (1, 32, 56, 56)),
        ("depthwise 3x3 96", block(conv(96, 96, 3, 1, 1, groups=96), relu()), (1, 96, 56, 56)),
        ("depthwise 5x5 /2", block(conv(96, 96, 5, 2, 2, groups=96), relu()), (1, 96, 56, 56)),
    ]
    for name, module, shape in table:
        yield Case(f"conv {name}, batch open", module, {0: "batch"}, [shape])
        yield Case(f"conv {name}, all open", module, every, [shape])
    one = block(torch.nn.Conv1d(64, 64, 3, 1, 1), relu())
    yield Case("conv1d 3 64-64, all open", one, {0: "batch", 2: "time"}, [(1, 64, 200), (1, 64, 1000)])


def patches() -> Iterator[Case]:
    for size, width in ((16, 192), (16, 768), (32, 768), (4, 96), (14, 384)):
        side = 224
        yield Case(f"patches {size} to {width}", Tokens(size, width), {0: "batch"}, [(1, 3, side, side)])
    yield Case("cut patches 16 to 384", CutTokens(16, 384), {0: "batch"}, [(1, 3, 224, 224)])
    yield Case("first layer 16 to 192", FirstLayer(16, 192, 196), {0: "batch"}, [(1, 3, 224, 224)])
    yield Case("first layer 7/4 to 64", FirstLayer(7, 64, 56 * 56, 4), {0: "batch"}, [(1, 3, 224, 224)])
    yield Case("merged patches 96", Merged(96), {0: "batch"}, [(1, 56, 56, 96)])
    tall = {0: "batch", 2: "height", 3: "width"}
    yield Case("patches 16 to 384, all open", Tokens(16, 384), tall, [(1, 3, 224, 224)])


def rows() -> Iterator[Case]:
    for width in (192, 768):
        shapes = [(1, n, width) for n in (1, 8, 50, 197)]
        yield Case(f"layer norm {width}", torch.nn.LayerNorm(width), {0: "batch", 1: "rows"}, shapes)
        yield Case(f"softmax {width}", torch.nn.Softmax(-1), {0: "batch", 1: "rows"}, shapes)
    for a, b in ((64, 64), (768, 768), (768, 3072)):
        layer = block(torch.nn.Linear(a, b), torch.nn.ReLU())
        yield Case(f"linear {a}-{b}", layer, {0: "rows"}, [(n, a) for n in (1, 2, 8, 64)])


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "lstm": lambda: recurrent("lstm"),
    "gru": lambda: recurrent("gru"),
    "voice": voice,
    "conv": convolutions,
    "patches": patches,
    "rows": rows,
}


def exported(case: Case, is_open: bool, shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    torch.manual_seed(0)
    axes = {"x": case.open} if is_open else None
    example = torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            case.module.eval(), (example,), out, input_names=["x"], output_names=["y"], dynamic_axes=axes,
            dynamo=False, opset_version=17,
        )  # fmt: skip
    return out.getvalue()


def least(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of a call of each: the least of all blocks, which take turns. Both run on the calling thread alone, whose own time
    counts: not that in which the machine did something else."""
    counts: dict[str, int] = {}
    best = dict.fromkeys(runs, math.inf)
    for name, run in runs.items():
        run()
        start = time.thread_time()
        run()
        counts[name] = max(1, int(BLOCK_SECONDS / (time.thread_time() - start)))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.thread_time()
            for _ in range(counts[name]):
                run()
            best[name] = min(best[name], (time.thread_time() - start) / counts[name])
    return best


def measure(case: Case, with_fixed: bool, rounds: int) -> list[float]:
    """Prints the lines of a case; the ratios."""
    ratios: list[float] = []
    shape = tuple(max(n, 2) if axis in case.open else n for axis, n in enumerate(case.shapes[0]))
    model = exported(case, True, shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    f = tt.compile(model, threads=1, sizes=case.sizes or None)
    rng = np.random.default_rng(0)
    for shape in case.shapes:
        x = rng.standard_normal(shape, dtype=np.float32)
        runs: dict[str, Callable[[], Any]] = {
            "onnxruntime": partial(session.run, None, {"x": x}),
            "open": partial(f, x),
        }
        if with_fixed:
            g = tt.compile(exported(case, False, shape), threads=1)
            runs["fixed"] = lambda x=x, g=g: g(x=x)  # type: ignore[misc]
        error = float(np.abs(session.run(None, {"x": x})[0] - f(x=x)["y"]).max())
        found = least(runs, rounds)
        ratio = found["onnxruntime"] / found["open"]
        ratios.append(ratio)
        sizes = "x".join(map(str, shape))
        line = f"{case.name:36s} {sizes:>14s} {found['onnxruntime'] * 1e6:9.1f} {found['open'] * 1e6:9.1f} {ratio:6.2f}  {error:.1e}"
        print(line + (f"  {found['open'] / found['fixed']:5.2f}" if with_fixed else ""), flush=True)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help=f"of {', '.join(GROUPS)}; none for all")
    parser.add_argument("--fixed", action="store_true", help="measure the program of fixed sizes too")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    for group in given.groups or GROUPS:
        ratios: list[float] = []
        for case in GROUPS[group]():
            if given.only in case.name:
                ratios += measure(case, given.fixed, given.rounds)
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{group}: geometric mean {mean:.2f}, least {min(ratios):.2f}, {len(ratios)} calls\n", flush=True)


if __name__ == "__main__":
    main()
