"""Normalisations of sums, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(5)


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def test_mean_and_inverse_deviation() -> None:
    feed = {"x": x(2, 3, 8), "s": x(2, 3, 8), "g": x(8), "h": x(8)}
    total = feed["x"].astype("f8") + feed["s"]
    mean, variance = total.mean(-1, keepdims=True), total.var(-1, keepdims=True)
    inverse = 1 / np.sqrt(variance + 1e-5)
    wanted = [(total - mean) * inverse * feed["g"] + feed["h"], mean, inverse, total]
    made = node("SkipLayerNormalization", [*feed], ["y", "mean", "inverse", "total"], epsilon=1e-5)
    agree(made, feed, wanted=[[w.astype("f4") for w in wanted]])


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shift", [True, False])
def test_skip_layer_norm(shift: bool, bias: bool, dtype: str) -> None:
    feeds = []
    for b, t in ((2, 3), (1, 7)):
        feed = {"x": x(b, t, 24, dtype=dtype), "s": x(b, t, 24, dtype=dtype), "g": x(24, dtype=dtype)}
        feeds.append(feed | ({"h": x(24, dtype=dtype)} if shift else {}) | ({"b": x(24, dtype=dtype)} if bias else {}))
    operands = ["x", "s", "g", "h" if shift else "", *(["b"] if bias else [])]
    made = node("SkipLayerNormalization", operands, ["y", "", "", "total"], epsilon=1e-5)
    agree(made, *feeds, open={"x": ("B", "T", 24), "s": ("B", "T", 24)})


@pytest.mark.parametrize("skip", [(1, 3, 8), (3, 8)])
def test_skip_broadcasts(skip: tuple[int, ...]) -> None:
    agree(node("SkipLayerNormalization", ["x", "s", "g", "h"]), {"x": x(2, 3, 8), "s": x(*skip), "g": x(8), "h": x(8)})


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 16), (5, 16)])
def test_skip_simplified(shape: tuple[int, ...], bias: bool, dtype: str) -> None:
    feed = {"x": x(*shape, dtype=dtype), "s": x(*shape, dtype=dtype), "g": x(16, dtype=dtype)}
    feed |= {"b": x(16, dtype=dtype)} if bias else {}
    made = node("SkipSimplifiedLayerNormalization", [*feed], ["y", "", "", "total"], epsilon=1e-6)
    agree(made, feed)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_simplified_layer_norm_of_the_plain_domain(axis: int, dtype: str) -> None:
    a, g = x(2, 4, 12, dtype=dtype), x(*((12,) if axis == -1 else (4, 12)), dtype=dtype)
    made = node("SimplifiedLayerNormalization", ["x", "g"], ["y"], domain="", axis=axis, epsilon=1e-6)
    agree(made, {"x": a, "g": g})


def embedding(b: int, t: int, parts: Sequence[str]) -> dict[str, np.ndarray]:
    ids = {"i": RNG.integers(0, 20, (b, t)), "sg": RNG.integers(0, 2, (b, t)), "p": RNG.integers(0, 9, (b, t))}
    mask = (np.arange(t) < RNG.integers(1, t + 1, b)[:, None]).astype("i4")
    every = {k: v.astype("i4") for k, v in ids.items()} | {"m": mask}
    return {k: every[k] for k in ("i", *parts)}


@pytest.mark.parametrize("parts", [(), ("sg",), ("sg", "m"), ("sg", "m", "p"), ("m",)])
def test_embed_layer_norm(parts: tuple[str, ...]) -> None:
    tables = {"words": x(20, 16), "places": x(9, 16), "g": x(16), "h": x(16)} | ({"kinds": x(2, 16)} if "sg" in parts else {})
    operands = ["i", "sg" if "sg" in parts else "", "words", "places", "kinds" if "sg" in parts else "", "g", "h"]
    operands += ["m" if "m" in parts else "", "p" if "p" in parts else ""]
    made = node("EmbedLayerNormalization", operands, ["y", "counts", "total"], epsilon=1e-6)
    feeds = [embedding(b, t, parts) for b, t in ((2, 5), (1, 8))]
    agree(made, *feeds, weights=tables, open=dict.fromkeys(feeds[0], ("B", "T")))


def group_norm(v: np.ndarray, groups: int, g: np.ndarray, h: np.ndarray, silu: bool) -> np.ndarray:
    """Channels last, in fp64."""
    n, c = v.shape[0], v.shape[-1]
    split = v.astype("f8").reshape(n, -1, groups, c // groups)
    y = (split - split.mean((1, 3), keepdims=True)) / np.sqrt(split.var((1, 3), keepdims=True) + 1e-5)
    out = y.reshape(v.shape) * g + h
    return out / (1 + np.exp(-out)) if silu else out


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("last", [1, 0])
@pytest.mark.parametrize("silu", [0, 1])
def test_group_norm(silu: int, last: int, dtype: str) -> None:
    v, g, h = x(2, 4, 5, 12, dtype=dtype), x(12), x(12)
    wanted = group_norm(v, 3, g, h, bool(silu)).astype(dtype)
    if not last:
        v, wanted = v.transpose(0, 3, 1, 2), wanted.transpose(0, 3, 1, 2)
    made = node("GroupNorm", ["x", "g", "h"], groups=3, activation=silu, channels_last=last)
    agree(made, {"x": np.ascontiguousarray(v), "g": g, "h": h}, wanted=[[wanted]])


@pytest.mark.parametrize("skip", [(2, 4, 5, 12), (2, 1, 1, 12), (2, 12)])
def test_skip_group_norm(skip: tuple[int, ...]) -> None:
    v, g, h, s, b = x(2, 4, 5, 12), x(12), x(12), x(*skip), x(12)
    total = v + (s if s.ndim == 4 else s[:, None, None]) + b
    made = node("SkipGroupNorm", ["x", "g", "h", "s", "b"], ["y", "total"], groups=4, activation=1)
    wanted = [group_norm(total, 4, g, h, True).astype("f4"), total]
    agree(made, {"x": v, "g": g, "h": h, "s": s, "b": b}, wanted=[wanted])


@pytest.mark.parametrize("scale", [(12,), (3, 4), (4,), None])
def test_branchwise_rms_norm(scale: tuple[int, ...] | None) -> None:
    feed = {"x": x(2, 5, 12)} | ({"g": x(*scale)} if scale else {})
    agree(node("BranchwiseRMSNorm", [*feed], num_branches=3), feed)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rms_norm(activation: str) -> None:
    agree(node("GatedRMSNorm", ["x", "g", "z"], activation=activation), {"x": x(2, 5, 12), "g": x(4), "z": x(2, 5, 12)})
