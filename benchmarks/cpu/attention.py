"""Attention of 12 heads of 64: plain products and softmax for the compilers, fused operators for the peers that have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.cpu.case import Arrays, Case, random, save_model
from benchmarks.cpu.gemm import ByFunction

LENGTHS = (128, 197, 512, 1024, 2048, 4096)
HEADS, WIDTH = 12, 64


def cases() -> Iterator[Case]:
    for s in LENGTHS:
        for causal in (False, True):
            yield attention(s, causal)


def attention(s: int, causal: bool) -> Case:
    """Inputs [1, heads, s, width]; causal: a mask of -inf above the diagonal, which is a constant of the model."""
    from onnx import helper

    shape = (1, HEADS, s, WIDTH)
    scale = WIDTH**-0.5

    def inputs() -> Arrays:
        return {name: random(*shape, seed=i) for i, name in enumerate("qkv")}

    def model(path: str) -> None:
        nodes = [
            helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["q", "kt"], ["s0"]),
            helper.make_node("Mul", ["s0", "scale"], ["s1"]),
        ]
        weights: Arrays = {"scale": np.array(scale, np.float32)}
        last = "s1"
        if causal:
            weights |= {"zero": np.array(0, np.int64), "one": np.array(1, np.int64), "n": np.array(s, np.int64)}
            weights |= {"down": np.array([s, 1], np.int64), "low": np.array(-np.inf, np.float32)}
            nodes += [
                helper.make_node("Range", ["zero", "n", "one"], ["columns"]),
                helper.make_node("Reshape", ["columns", "down"], ["rows"]),
                helper.make_node("LessOrEqual", ["columns", "rows"], ["seen"]),
                helper.make_node("Where", ["seen", "s1", "low"], ["s2"]),
            ]
            last = "s2"
        nodes += [helper.make_node("Softmax", [last], ["p"], axis=-1), helper.make_node("MatMul", ["p", "v"], ["y"])]
        save_model(path, nodes, inputs(), weights)

    def fused(path: str) -> None:
        """The same by ONNX Runtime's own operator, whose inputs are [1, s, heads * width]."""
        flat = {"perm": [0, 2, 1, 3]}
        nodes = []
        for name in "qkv":
            nodes.append(helper.make_node("Transpose", [name], [f"{name}t"], **flat))
            nodes.append(helper.make_node("Reshape", [f"{name}t", "wide"], [f"{name}w"]))
        more = {"unidirectional": 1} if causal else {}
        nodes.append(
            helper.make_node(
                "MultiHeadAttention", ["qw", "kw", "vw"], ["o"], domain="com.microsoft", num_heads=HEADS, scale=scale, **more
            )
        )
        nodes.append(helper.make_node("Reshape", ["o", "heads"], ["oh"]))
        nodes.append(helper.make_node("Transpose", ["oh"], ["y"], **flat))
        shapes = {"wide": np.array([1, s, HEADS * WIDTH], np.int64), "heads": np.array([1, s, HEADS, WIDTH], np.int64)}
        save_model(path, nodes, inputs(), shapes)

    def module() -> Any:
        import torch

        return ByFunction.of(
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
        )

    return Case(
        f"attention {s}" + (" causal" if causal else ""),
        "attention",
        model,
        inputs,
        module,
        None,
        4.0 * HEADS * s * s * WIDTH / (2 if causal else 1),
        quick=s == 512,
        peers={"ORT fused": fused},
    )
