"""Linear attention and causal convolutions with a state, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(16)
LOOSE = (1e-4, 1e-4)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def unit(*shape: int) -> np.ndarray:
    v = x(*shape)
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("heads", "groups"), [(2, 2), (4, 2)])
def test_linear_attention(heads: int, groups: int, rule: str, past: bool) -> None:
    feeds = []
    for b, t in ((2, 5), (1, 1)):
        feed = {"q": x(b, t, heads * 8), "k": unit(b, t, groups, 8).reshape(b, t, -1), "v": x(b, t, groups * 6)}
        feed |= {"s": x(b, groups, 8, 6)} if past else {}
        feed |= {"g": -np.abs(x(b, t, groups))} if rule.startswith("gated") else {}
        feeds.append(feed | ({"beta": RNG.random((b, t, groups)).astype("f4")} if rule.endswith("delta") else {}))
    names = ["q", "k", "v", *(k if k in feeds[0] else "" for k in ("s", "g", "beta"))]
    made = node("LinearAttention", names, ["y", "state"], q_num_heads=heads, kv_num_heads=groups, update_rule=rule)
    shapes = {"q": ("B", "T", heads * 8), "k": ("B", "T", groups * 8), "v": ("B", "T", groups * 6)}
    agree(
        made,
        *feeds,
        open=shapes | dict.fromkeys(("g", "beta"), ("B", "T", groups)) | {"s": ("B", groups, 8, 6)},
        tolerance=LOOSE,
    )


def test_a_decay_for_each_key_dimension_of_one_token() -> None:
    feed = {"q": x(2, 1, 16), "k": x(2, 1, 16), "v": x(2, 1, 12), "s": x(2, 2, 8, 6), "g": -np.abs(x(2, 1, 16))}
    made = node("LinearAttention", [*feed], ["y", "state"], q_num_heads=2, kv_num_heads=2, update_rule="gated")
    agree(made, feed, tolerance=LOOSE)


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("dilation", [1, 2])
def test_causal_convolution(dilation: int, state: bool, activation: str) -> None:
    feeds = [{"x": x(b, 6, t)} | ({"s": x(b, 6, 3 * dilation)} if state else {}) for b, t in ((2, 7), (1, 1))]
    weights = {"w": x(6, 1, 4), "b": x(6)}
    made = node(
        "CausalConvWithState", ["x", "w", "b", *(["s"] if state else [])], ["y", "p"], activation=activation, dilation=dilation
    )
    agree(made, *feeds, weights=weights, open={"x": ("B", 6, "T"), "s": ("B", 6, 3 * dilation)})


def test_causal_convolution_with_channels_last() -> None:
    feed = {"x": x(2, 5, 6), "s": x(2, 3, 6)}
    made = node("CausalConvWithState", ["x", "w", "b", "s"], ["y", "p"], channels_last=1)
    agree(made, feed, weights={"w": x(6, 1, 4), "b": x(6)})


@pytest.mark.parametrize(("rule", "form", "gate", "norm"), [
    ("gated_delta", "batch", "none", 0), ("gated_delta", "tokens", "softplus", 1), ("gated_delta", "packed", "sigmoid", 1),
    ("gated", "packed", "softplus", 0), ("gated", "batch", "sigmoid", 1), ("delta", "tokens", "none", 1), ("linear", "batch", "none", 0),
])  # fmt: skip
def test_gated_delta_net(rule: str, form: str, gate: str, norm: int) -> None:
    b, t, h, g, key, value = 2, 5, 2, 4, 8, 6
    q, k, v = x(b, t, h, key), unit(b, t, h, key), x(b, t, g, value)
    feed: dict[str, np.ndarray]
    if form == "packed":
        feed = {"q": np.concatenate([p.reshape(b, t, -1) for p in (q, k, v)], -1).reshape(b * t, -1)}
    else:
        feed = {"q": q, "k": k, "v": v}
        feed = feed if form == "batch" else {n: p.reshape(b * t, *p.shape[2:]) for n, p in feed.items()}
    lead = (b, t) if form == "batch" else (b * t,)
    feed |= {"g": -np.abs(x(*lead, g)) if gate == "none" else x(*lead, g)} if rule.startswith("gated") else {}
    feed |= {"beta": x(*lead, g)} if rule.endswith("delta") else {}
    feed |= {"s": x(b, g, value, key)} | ({"a": x(g), "d": x(g)} if gate != "none" else {})
    names = ["q", *(n if n in feed else "" for n in ("k", "v", "none", "g", "beta", "s", "a", "d"))]
    made = node(
        "GatedDeltaNet",
        names,
        ["y", "state"],
        update_rule=rule,
        gate_activation=gate,
        beta_activation="sigmoid",
        qk_l2_norm=norm,
    )
    agree(made, feed, tolerance=LOOSE)
