"""Matrix products: squares of two inputs, odd sizes, and the products of BERT and GPT with their weights, bias and GELU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.cpu.case import Arrays, Case, random, save_model

SQUARES = (64, 128, 256, 512, 1024, 2048)
HALVES = ((512, 512, 512), (128, 3072, 768), (1, 4096, 4096))
"""Products in fp16 with sums in fp32: rows, columns, depth."""
ODD = (
    (1000, 777, 1531), (333, 333, 333), (1, 4096, 4096), (7, 3072, 768), (4096, 64, 64), (64, 64, 8192), (128, 128, 32768),
    (256, 256, 32768),
)  # fmt: skip
LAYERS = (
    ("bert-tiny", 64, 512, 128), ("bert-base", 128, 3072, 768), ("gpt2", 64, 3072, 768), ("vit-tiny", 197, 768, 192),
    ("whisper", 1500, 1536, 384),
)  # fmt: skip
BATCHED = ((12, 128, 128, 64), (12, 128, 64, 128), (64, 32, 32, 32))


def cases() -> Iterator[Case]:
    for n in SQUARES:
        yield product(n, n, n, quick=n in (128, 512))
    for m, n, k in ODD:
        yield product(m, n, k)
    for m, n, k in HALVES:
        yield product(m, n, k, half=True)
    for b, m, n, k in BATCHED:
        yield product(m, n, k, batch=b)
    for name, m, n, k in LAYERS:
        yield layer(name, m, n, k, gelu=True, quick=name == "bert-base")
        yield layer(name, m, k, n, gelu=False)


def product(m: int, n: int, k: int, batch: int = 0, quick: bool = False, half: bool = False) -> Case:
    from onnx import helper

    lead = (batch,) if batch else ()
    dtype = np.float16 if half else np.float32

    def inputs() -> Arrays:
        return {"a": random(*lead, m, k).astype(dtype), "b": random(*lead, k, n, seed=1).astype(dtype)}

    def module() -> Any:
        import torch

        return ByFunction.of(torch.matmul)

    def numpy(x: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.matmul(x["a"], x["b"])

    name = f"gemm {m}x{n}x{k}" if not batch else f"gemm {batch} of {m}x{n}x{k}"
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    work = 2.0 * m * n * k * max(1, batch)

    def model(path: str) -> None:
        save_model(path, [node], inputs(), {}, kind=dtype)

    name, group = (f"{name} fp16", "16 bits") if half else (name, "gemm")
    return Case(name, group, model, inputs, module, None if half else numpy, work, quick=quick)


def layer(name: str, m: int, n: int, k: int, gelu: bool, quick: bool = False) -> Case:
    """x @ w + b with weights, and GELU."""
    from onnx import helper

    weights = {"w": random(k, n, seed=1, scale=k**-0.5), "c": random(n, seed=2)}

    def inputs() -> Arrays:
        return {"a": random(m, k)}

    def model(path: str) -> None:
        last = "z" if gelu else "y"
        nodes = [helper.make_node("MatMul", ["a", "w"], ["t"]), helper.make_node("Add", ["t", "c"], [last])]
        if gelu:
            nodes.append(helper.make_node("Gelu", ["z"], ["y"]))
        save_model(path, nodes, inputs(), weights)

    def module() -> Any:
        import torch
        from torch import nn

        linear = nn.Linear(k, n)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights["w"].T.copy()))
            linear.bias.copy_(torch.from_numpy(weights["c"]))
        return nn.Sequential(linear, nn.GELU()) if gelu else linear

    title = f"layer {name} {m}x{n}x{k}" + (" gelu" if gelu else "")
    return Case(title, "layer", model, inputs, module, None, 2.0 * m * n * k, quick=quick)


class ByFunction:
    """A torch function as a module, made late so that this file imports without torch."""

    @staticmethod
    def of(function: Any) -> Any:
        from torch import nn

        class Module(nn.Module):
            def forward(self, *args: Any) -> Any:
                return function(*args)

        return Module()
