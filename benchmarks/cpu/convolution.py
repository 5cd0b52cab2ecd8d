"""The convolutions of ResNet-50 and MobileNetV2, batch 1, with bias and ReLU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.cpu.case import Arrays, Case, random, save_model

# channels in, channels out, height, kernel, stride, groups
RESNET = (
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 3, 1, 1), (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (512, 512, 7, 3, 1, 1),
    (128, 128, 56, 3, 2, 1), (256, 256, 28, 3, 2, 1), (512, 512, 14, 3, 2, 1),
    (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1), (128, 512, 28, 1, 1, 1), (512, 128, 28, 1, 1, 1),
    (256, 1024, 14, 1, 1, 1), (1024, 256, 14, 1, 1, 1), (512, 2048, 7, 1, 1, 1), (2048, 512, 7, 1, 1, 1),
)  # fmt: skip
MOBILENET = (
    (32, 32, 112, 3, 1, 32), (96, 96, 112, 3, 2, 96), (144, 144, 56, 3, 1, 144), (192, 192, 28, 3, 1, 192),
    (384, 384, 14, 3, 1, 384), (576, 576, 14, 3, 1, 576), (960, 960, 7, 3, 1, 960),
    (16, 96, 112, 1, 1, 1), (144, 24, 56, 1, 1, 1), (192, 32, 28, 1, 1, 1), (384, 64, 14, 1, 1, 1), (960, 160, 7, 1, 1, 1),
)  # fmt: skip
QUICK = {(64, 64, 56, 3, 1, 1), (144, 144, 56, 3, 1, 144), (256, 64, 56, 1, 1, 1)}


def cases() -> Iterator[Case]:
    for shape in (*RESNET, *MOBILENET):
        yield convolution(*shape)


def convolution(c: int, o: int, h: int, k: int, s: int, groups: int) -> Case:
    from onnx import helper

    pad = k // 2
    weights = {"w": random(o, c // groups, k, k, seed=1, scale=(c // groups * k * k) ** -0.5), "b": random(o, seed=2)}

    def inputs() -> Arrays:
        return {"x": random(1, c, h, h)}

    def model(path: str) -> None:
        conv = helper.make_node(
            "Conv", ["x", "w", "b"], ["t"], kernel_shape=[k, k], pads=[pad] * 4, strides=[s, s], group=groups
        )
        save_model(path, [conv, helper.make_node("Relu", ["t"], ["y"])], inputs(), weights)

    def module() -> Any:
        import torch
        from torch import nn

        conv = nn.Conv2d(c, o, k, s, pad, groups=groups)
        with torch.no_grad():
            conv.weight.copy_(torch.from_numpy(weights["w"]))
            conv.bias.copy_(torch.from_numpy(weights["b"]))
        return nn.Sequential(conv, nn.ReLU())

    out = (h + 2 * pad - k) // s + 1
    kind = "depthwise" if groups == c else f"{k}x{k}"
    name = f"conv {kind} {c}-{o} {h}" + (f" /{s}" if s > 1 else "")
    quick = (c, o, h, k, s, groups) in QUICK
    work = 2.0 * out * out * o * (c // groups) * k * k
    return Case(name, f"conv {kind}", model, inputs, module, None, work, images=True, quick=quick)
