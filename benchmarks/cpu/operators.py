"""Single operators, and small modules, against PyTorch's own kernels: the operators of Tatami that are slow.

    python -m benchmarks.cpu.operators [--threads 1] [part of a name …]

A line is the least time of several calls of each, in ms, and PyTorch's time divided by ours; those below 0.9 are marked. For
finding gaps: nothing is kept, and the machine need not be quiet. The record is measured by `python -m benchmarks.cpu`.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import tatami as tt

SECONDS, LEAST_CALLS = 0.25, 5
BELOW = 0.9
Case = tuple[nn.Module, tuple[torch.Tensor, ...]]
R = torch.randn


class Called(nn.Module):
    """A function of tensors, and of modules whose parameters it uses."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(modules)

    def forward(self, *x: torch.Tensor) -> Any:
        return self.function(*x, *self.parts)


def cases() -> dict[str, Case]:
    """Modules and their inputs by name, from one seed."""
    torch.manual_seed(0)
    return {
        "convT 4x4/2 64-32 32": (nn.ConvTranspose2d(64, 32, 4, 2, 1), (R(1, 64, 32, 32),)),
        "convT 2x2/2 64-32 64": (nn.ConvTranspose2d(64, 32, 2, 2), (R(1, 64, 64, 64),)),
        "convT 3x3/2 128-64 28": (nn.ConvTranspose2d(128, 64, 3, 2, 1, 1), (R(1, 128, 28, 28),)),
        "conv1d 80-256 k3 1000": (nn.Conv1d(80, 256, 3, padding=1), (R(1, 80, 1000),)),
        "conv1d dilated 128 k3 d4 2000": (nn.Conv1d(128, 128, 3, padding=4, dilation=4), (R(1, 128, 2000),)),
        "conv3d 16-32 k3 16^3": (nn.Conv3d(16, 32, 3, padding=1), (R(1, 16, 16, 32, 32),)),
        "conv5x5 32-64 28": (nn.Conv2d(32, 64, 5, padding=2), (R(1, 32, 28, 28),)),
        "conv grouped 8 128 28": (nn.Conv2d(128, 128, 3, padding=1, groups=8), (R(1, 128, 28, 28),)),
        "conv grouped 32 resnext 256 14": (nn.Conv2d(256, 256, 3, padding=1, groups=32), (R(1, 256, 14, 14),)),
        "dw 7x7 convnext 96 56": (nn.Conv2d(96, 96, 7, padding=3, groups=96), (R(1, 96, 56, 56),)),
        "dw 5x5 240 14": (nn.Conv2d(240, 240, 5, padding=2, groups=240), (R(1, 240, 14, 14),)),
        "conv dilated 2 256 28": (nn.Conv2d(256, 256, 3, padding=2, dilation=2), (R(1, 256, 28, 28),)),
        "conv batch 8 64 56": (nn.Conv2d(64, 64, 3, padding=1), (R(8, 64, 56, 56),)),
        "conv 1x1 batch 8 256-64 56": (nn.Conv2d(256, 64, 1), (R(8, 256, 56, 56),)),
        "patch embed 16x16/16": (nn.Conv2d(3, 192, 16, 16), (R(1, 3, 224, 224),)),
        "maxpool 3/2 64 112": (nn.MaxPool2d(3, 2, 1), (R(1, 64, 112, 112),)),
        "avgpool 2 64 112": (nn.AvgPool2d(2), (R(1, 64, 112, 112),)),
        "adaptive avg 7 512 14": (nn.AdaptiveAvgPool2d(7), (R(1, 512, 14, 14),)),
        "upsample bilinear x2 64 56": (nn.Upsample(scale_factor=2, mode="bilinear"), (R(1, 64, 56, 56),)),
        "upsample nearest x2 64 56": (nn.Upsample(scale_factor=2), (R(1, 64, 56, 56),)),
        "lstm 256 seq64": (Called(lambda x, m: m(x)[0], nn.LSTM(256, 256, batch_first=True)), (R(1, 64, 256),)),
        "gru 128 seq64 b4": (Called(lambda x, m: m(x)[0], nn.GRU(128, 128, batch_first=True)), (R(4, 64, 128),)),
        "mha 256 8h 128": (
            Called(lambda x, m: m(x, x, x, need_weights=False)[0], nn.MultiheadAttention(256, 8, batch_first=True)),
            (R(1, 128, 256),),
        ),
        "encoder layer 256 128": (
            nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, activation="gelu").eval(),
            (R(1, 128, 256),),
        ),
        "linear b1 1024-1000": (nn.Linear(1024, 1000), (R(1, 1024),)),
        "linear b1 4096-1000": (nn.Linear(4096, 1000), (R(1, 4096),)),
        "mlp b32 784-512-10": (nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)), (R(32, 784),)),
        "bmm 32x64x64x64": (Called(torch.bmm), (R(32, 64, 64), R(32, 64, 64))),
        "einsum bhid,bhjd->bhij": (
            Called(lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b)),
            (R(1, 8, 128, 64), R(1, 8, 128, 64)),
        ),
        "cross entropy 512x32000": (Called(lambda x: functional.cross_entropy(x, torch.arange(512) % 32000)), (R(512, 32000),)),
        "log_softmax 128x10000": (Called(lambda x: functional.log_softmax(x, -1)), (R(128, 10000),)),
        "layernorm 128x768": (nn.LayerNorm(768), (R(1, 128, 768),)),
        "groupnorm 32 256 32": (nn.GroupNorm(32, 256), (R(1, 256, 32, 32),)),
        "instnorm 64 128": (nn.InstanceNorm2d(64), (R(1, 64, 128, 128),)),
        "gn+silu 16 128": (nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU()), (R(1, 16, 128, 128),)),
        "gelu 512x1024": (nn.GELU(), (R(512, 1024),)),
        "silu 512x1024": (nn.SiLU(), (R(512, 1024),)),
        "mish 512x1024": (nn.Mish(), (R(512, 1024),)),
        "hardswish 512x1024": (nn.Hardswish(), (R(512, 1024),)),
        "softplus 512x1024": (nn.Softplus(), (R(512, 1024),)),
        "sigmoid 512x1024": (nn.Sigmoid(), (R(512, 1024),)),
        "pow1.5 512x1024": (Called(lambda x: x.abs().pow(1.5)), (R(512, 1024),)),
        "atan2 512x1024": (Called(lambda x: torch.atan2(x, x + 1)), (R(512, 1024),)),
        "sum all 4M": (Called(lambda x: x.sum()), (R(2048, 2048),)),
        "var dim0 1024": (Called(lambda x: x.var(0)), (R(1024, 1024),)),
        "max dim0": (Called(lambda x: x.max(0)[0]), (R(1024, 1024),)),
        "argmax dim1 64x32000": (Called(lambda x: x.argmax(1)), (R(64, 32000),)),
        "cumsum dim1": (Called(lambda x: x.cumsum(1)), (R(512, 1024),)),
        "cumsum dim0": (Called(lambda x: x.cumsum(0)), (R(512, 1024),)),
        "sort 256x1024": (Called(lambda x: x.sort(1)[0]), (R(256, 1024),)),
        "topk 50 of 64x32000": (Called(lambda x: x.topk(50, 1)[0]), (R(64, 32000),)),
        "embedding 512 of 30000x768": (Called(lambda m: m(torch.arange(512) * 7), nn.Embedding(30000, 768)), ()),
        "gather rows": (Called(lambda x: x[torch.arange(1000) % 512]), (R(512, 768),)),
        "scatter_add": (Called(lambda x: torch.zeros(512, 256).index_add(0, torch.arange(2048) % 512, x)), (R(2048, 256),)),
        "transpose 4d nchw-nhwc": (Called(lambda x: x.permute(0, 2, 3, 1).contiguous()), (R(1, 64, 112, 112),)),
        "pixel shuffle 2": (nn.PixelShuffle(2), (R(1, 256, 64, 64),)),
        "pad reflect": (nn.ReflectionPad2d(3), (R(1, 64, 112, 112),)),
        "roll": (Called(lambda x: torch.roll(x, (3, 3), (1, 2))), (R(1, 56, 56, 96),)),
        "window partition": (
            Called(lambda x: x.view(1, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 96)),
            (R(1, 56, 56, 96),),
        ),
        "grid_sample": (
            Called(lambda x, g: functional.grid_sample(x, g, align_corners=False)),
            (R(1, 32, 64, 64), R(1, 64, 64, 2).clamp(-1, 1)),
        ),
        "where/clamp chain": (Called(lambda x: torch.where(x > 0, x.clamp(max=1), x * 0.1) + x.abs()), (R(512, 1024),)),
        "fft-free stft conv": (nn.Conv1d(1, 257, 400, stride=160), (R(1, 1, 16000),)),
        "matmul i64": (Called(lambda a, b: a @ b), (torch.randint(0, 9, (128, 128)), torch.randint(0, 9, (128, 128)))),
        "matmul f64 256": (Called(lambda a, b: a @ b), (R(256, 256).double(), R(256, 256).double())),
        "matmul bf16 256": (Called(lambda a, b: a @ b), (R(256, 256).bfloat16(), R(256, 256).bfloat16())),
        "outer": (Called(lambda a, b: a[:, None] * b[None]), (R(2048), R(2048))),
        "pairwise dist 512": (Called(lambda a: torch.cdist(a, a)), (R(512, 64),)),
        "norm rows": (Called(lambda x: x / x.norm(dim=1, keepdim=True)), (R(2048, 512),)),
        "tanh 512x1024": (nn.Tanh(), (R(512, 1024),)),
        "erf gelu tanh approx": (nn.GELU("tanh"), (R(512, 1024),)),
        "exp": (Called(torch.exp), (R(512, 1024),)),
        "sinh": (Called(torch.sinh), (R(512, 1024),)),
        "tan": (Called(torch.tan), (R(512, 1024),)),
        "asin": (Called(torch.asin), (R(512, 1024).clamp(-1, 1),)),
        "logsumexp": (Called(lambda x: x.logsumexp(1)), (R(512, 1024),)),
        "elu": (nn.ELU(), (R(512, 1024),)),
        "prelu": (nn.PReLU(), (R(512, 1024),)),
        "glu": (nn.GLU(), (R(512, 1024),)),
        "fmod": (Called(lambda x: torch.fmod(x, 0.7)), (R(512, 1024),)),
        "remainder": (Called(lambda x: torch.remainder(x, 0.7)), (R(512, 1024),)),
        "int div": (Called(lambda x: torch.div(x, 7, rounding_mode="floor")), (torch.randint(-99, 99, (512, 1024)),)),
        "bool and": (Called(lambda x: (x > 0) & (x < 1)), (R(512, 1024),)),
        "cast i32": (Called(lambda x: x.to(torch.int32)), (R(512, 1024),)),
        "cast f16": (Called(lambda x: x.to(torch.float16)), (R(512, 1024),)),
        "sum dim0 f16": (Called(lambda x: x.sum(0)), (R(512, 1024).half(),)),
        "prod": (Called(lambda x: x.prod(1)), (R(512, 1024),)),
        "std": (Called(lambda x: x.std(1)), (R(512, 1024),)),
        "median": (Called(lambda x: x.median(1)[0]), (R(128, 1024),)),
        "any": (Called(lambda x: (x > 3).any(1)), (R(512, 1024),)),
        "unfold": (nn.Unfold(3, padding=1), (R(1, 32, 56, 56),)),
        "fold": (nn.Fold((56, 56), 3, padding=1), (R(1, 288, 3136),)),
        "pad const": (nn.ConstantPad2d(3, 0.0), (R(1, 64, 112, 112),)),
        "cat dim-1": (Called(lambda a, b: torch.cat([a, b], -1)), (R(512, 300), R(512, 212))),
        "stack": (Called(lambda a, b: torch.stack([a, b], -1)), (R(512, 512), R(512, 512))),
        "flip": (Called(lambda x: x.flip(-1)), (R(512, 1024),)),
        "tril": (Called(torch.tril), (R(1024, 1024),)),
        "repeat_interleave": (Called(lambda x: x.repeat_interleave(4, 1)), (R(64, 8, 64, 32),)),
        "rotary": (
            Called(lambda x, c, s: x * c + torch.cat([-x[..., 32:], x[..., :32]], -1) * s),
            (R(1, 12, 128, 64), R(128, 64), R(128, 64)),
        ),
        "rmsnorm": (Called(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)), (R(128, 768),)),
        "sdpa 1q": (
            Called(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v)),
            (R(1, 12, 1, 64), R(1, 12, 512, 64), R(1, 12, 512, 64)),
        ),
        "gqa": (
            Called(
                lambda q, k, v: functional.scaled_dot_product_attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))
            ),
            (R(1, 16, 128, 64), R(1, 4, 128, 64), R(1, 4, 128, 64)),
        ),
        "bn train": (Called(lambda x: functional.batch_norm(x, None, None, training=True)), (R(8, 64, 28, 28),)),
        "nll/softmax ce 32x1000": (Called(lambda x: functional.cross_entropy(x, torch.arange(32))), (R(32, 1000),)),
        "bilinear x2": (nn.Upsample(scale_factor=2, mode="bilinear"), (R(1, 64, 56, 56),)),
        "bicubic": (nn.Upsample(scale_factor=2, mode="bicubic"), (R(1, 16, 56, 56),)),
        "avgpool 3/2": (nn.AvgPool2d(3, 2, 1), (R(1, 64, 112, 112),)),
        "maxpool3d": (nn.MaxPool3d(2), (R(1, 16, 16, 32, 32),)),
        "maxpool1d": (nn.MaxPool1d(3, 2), (R(1, 128, 4000),)),
        "conv3x3 b1 128 56": (nn.Conv2d(128, 128, 3, padding=1), (R(1, 128, 56, 56),)),
        "conv 3x3 3-32 224": (nn.Conv2d(3, 32, 3, padding=1), (R(1, 3, 224, 224),)),
        "conv1x1 b1 512 7": (nn.Conv2d(512, 512, 1), (R(1, 512, 7, 7),)),
        "linear 512x512x2048": (nn.Linear(512, 2048), (R(512, 512),)),
        "linear b1 768-3072": (nn.Linear(768, 3072), (R(1, 768),)),
        "matmul T": (Called(lambda a, b: a.T @ b), (R(512, 256), R(512, 384))),
        "gram": (Called(lambda a: a.T @ a), (R(2048, 128),)),
        "cumprod": (Called(lambda x: x.cumprod(1)), (R(512, 256),)),
        "cummax": (Called(lambda x: x.cummax(1)[0]), (R(512, 256),)),
        "searchsorted": (Called(lambda a, b: torch.searchsorted(a, b)), (torch.arange(10000.0), R(4096) * 1e4)),
        "bincount-ish": (
            Called(lambda i: torch.zeros(100).index_add(0, i, torch.ones(10000))),
            (torch.randint(0, 100, (10000,)),),
        ),
        "masked_fill": (Called(lambda x: x.masked_fill(x > 0, -1.0)), (R(512, 1024),)),
        "diag": (Called(lambda x: torch.diagonal(x) * 2), (R(1024, 1024),)),
        "triu softmax": (Called(lambda x: (x + torch.triu(torch.full((256, 256), -1e9), 1)).softmax(-1)), (R(12, 256, 256),)),
        "conv2d circular": (nn.Conv2d(16, 16, 3, padding=1, padding_mode="circular"), (R(1, 16, 64, 64),)),
    }


def measured(names: tuple[str, ...], threads: int) -> Iterator[tuple[str, float, float]]:
    """Name, and the least seconds of a call: ours and PyTorch's."""
    torch.set_num_threads(threads)
    for name, (module, x) in cases().items():
        if not names or any(n in name for n in names):
            try:
                yield name, *_both(module.eval(), x, threads)
            except tt.TatamiError as error:
                print(f"{name}: {error}")


def _both(module: nn.Module, x: tuple[torch.Tensor, ...], threads: int) -> tuple[float, float]:
    with torch.no_grad():
        f = tt.compile(torch.export.export(module, x), target="cpu", threads=threads)
        ports = [p.tensor for p in f.signature.inputs if p.storage == "argument"]
        given = {n: v if v.dtype == torch.bfloat16 else v.numpy() for n, v in zip(ports, x, strict=True)}
        return _least(lambda: f(given)), _least(lambda: module(*x))


def _least(call: Callable[[], object]) -> float:
    call()
    best, calls, began = float("inf"), 0, time.perf_counter()
    while calls < LEAST_CALLS or time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        call()
        best, calls = min(best, time.perf_counter() - start), calls + 1
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="single operators against PyTorch")
    parser.add_argument("names", nargs="*", help="parts of names; all without one")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for name, ours, theirs in measured(tuple(given.names), given.threads):
        mark = "  <" if theirs < BELOW * ours else ""
        print(f"{name:36} {ours * 1e3:10.4f} {theirs * 1e3:10.4f} {theirs / ours:8.2f}{mark}", flush=True)


if __name__ == "__main__":
    main()
