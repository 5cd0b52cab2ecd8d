"""Attention of single tokens, packed batches and relative biases: ONNX Runtime where its CPU has a kernel, else numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(13)
H, D = 3, 8
W = H * D
LOOSE = (1e-4, 1e-4)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def softmax(v: np.ndarray) -> np.ndarray:
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray | float = 0.0) -> np.ndarray:
    """[B, H, S, D] in fp64."""
    q, k, v = (t.astype("f8") for t in (q, k, v))
    return softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) + added) @ v


def by_head(t: np.ndarray) -> np.ndarray:
    return t.reshape(*t.shape[:2], H, -1).transpose(0, 2, 1, 3)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_one_token_with_a_shared_buffer(added: bool, bias: bool, mask: bool) -> None:
    feeds = []
    for past in (4, 0):
        feed = {"q": x(2, 1, W), "k": x(2, 1, W), "v": x(2, 1, W), "pk": x(2, H, 9, D), "pv": x(2, H, 9, D)}
        for cache in ("pk", "pv"):
            feed[cache][:, :, past:] = 0
        feed |= {"past": np.array([past], "i4")} | ({"m": np.ones((2, past + 1), "i4")} if mask else {})
        if mask:
            feed["m"][1, 0] = 0 if past else 1
        feeds.append(feed | ({"a": x(1, H, 1, past + 1)} if added else {}))
    operands = ["q", "k", "v", "m" if mask else "", "a" if added else "", "pk", "pv", "past", "", "", *(["b"] if bias else [])]
    made = node("DecoderMaskedMultiHeadAttention", operands, ["y", "nk", "nv"], num_heads=H, past_present_share_buffer=1)
    shapes: dict[str, Any] = {"m": (2, "T"), "a": (1, H, 1, "T")}
    agree(made, *feeds, weights={"b": x(3 * W)} if bias else {}, open=shapes, tolerance=LOOSE)


def test_one_token_over_the_keys_of_an_encoder() -> None:
    feed = {"q": x(2, 1, W), "k": x(2, H, 6, D), "v": x(2, H, 6, D), "m": np.array([[1] * 6, [1] * 4 + [0] * 2], "i4")}
    agree(node("DecoderMaskedMultiHeadAttention", ["q", "k", "v", "m"], num_heads=H), feed, tolerance=LOOSE)


def test_beams() -> None:
    """Each row of the cache is read from the beam that cache_indirection names."""
    past, beams, batch = 5, 2, 2
    rows = batch * beams
    feed = {"q": x(rows, 1, W), "k": x(rows, 1, W), "v": x(rows, 1, W), "pk": x(rows, H, 9, D), "pv": x(rows, H, 9, D)}
    for cache in ("pk", "pv"):
        feed[cache][:, :, past:] = 0
    feed |= {"past": np.array([past], "i4"), "ci": RNG.integers(0, beams, (batch, beams, 9)).astype("i4")}
    operands = ["q", "k", "v", "", "", "pk", "pv", "past", "w", "ci"]
    made = node("DecoderMaskedMultiHeadAttention", operands, ["y", "nk", "nv"], num_heads=H, past_present_share_buffer=1)
    agree(made, feed, weights={"w": np.array([beams], "i4")}, tolerance=LOOSE)


def test_one_token_of_merged_projections() -> None:
    feed = {"x": x(2, 1, 12), "p": x(2, 2, H, 9, D), "past": np.array([4], "i4")}
    weights = {"w": x(12, 3 * W), "b": x(3 * W)}
    q, k, v = (by_head(t) for t in np.split(feed["x"] @ weights["w"] + weights["b"], 3, -1))
    cache = feed["p"].copy()
    cache[0][:, :, 4:5], cache[1][:, :, 4:5] = k, v
    y = attention(q, cache[0][:, :, :5], cache[1][:, :, :5]).transpose(0, 2, 1, 3).reshape(2, 1, W)
    operands = ["x", "w", "b", "", "p", "", "past"]
    made = node("DecoderMaskedSelfAttention", operands, ["y", "present"], num_heads=H, past_present_share_buffer=1)
    agree(made, feed, weights=weights, wanted=[[y.astype("f4"), cache]], tolerance=LOOSE)


@pytest.mark.parametrize(("static", "past", "mask"), [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1)])
def test_flags_of_a_decoder(static: int, past: int, mask: int) -> None:
    """Sequence first; with static_kv the keys are those of an encoder, and with use_past those of the cache."""
    s, t, b = 3, 5, 2
    feed = {"q": x(s, b, W), "key": x(t, b, W)}
    weights = {"wq": x(W, W), "wkv": x(W, 2 * W), "b": x(3 * W)}
    flags = {"static": static, "past": past, "state": 1, "mask": mask}
    weights |= {f"is_{k}": np.array(bool(v)) for k, v in flags.items()}
    q = by_head((feed["q"] @ weights["wq"] + weights["b"][:W]).transpose(1, 0, 2))
    source = feed["key"] if static else feed["q"]
    k, v = (by_head(p) for p in np.split((source @ weights["wkv"] + weights["b"][W:]).transpose(1, 0, 2), 2, -1))
    if past:
        feed |= {"pk": x(b, H, 4, D), "pv": x(b, H, 4, D)}
        both = (feed["pk"], feed["pv"])
        k, v = both if static else (np.concatenate([both[0], k], 2), np.concatenate([both[1], v], 2))
    added: Any = 0.0
    if mask:
        feed["m"] = RNG.random((b, k.shape[2])) < 0.4
        feed["m"][:, 0] = False  # where all is masked, scores near -10000 are exact to 1e-3 only
        added = np.where(feed["m"], -10000.0, 0.0)[:, None, None]
    y = attention(q, k, v, added).transpose(2, 0, 1, 3).reshape(s, b, W).astype("f4")
    operands = ["q", "key", "wq", "wkv", "b", "m" if mask else "", *(["pk", "pv"] if past else ["", ""])]
    made = node("DecoderAttention", [*operands, *(f"is_{k}" for k in flags)], ["y", "nk", "nv"], num_heads=H)
    agree(made, feed, weights=weights, wanted=[[y, k, v]], tolerance=LOOSE)


LENGTHS = (2, 5, 3)


def packing(longest: int) -> tuple[np.ndarray, np.ndarray]:
    """token_offset and the running sums of LENGTHS."""
    real = (np.arange(longest) < np.array(LENGTHS)[:, None]).reshape(-1)
    order = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)])
    return order.reshape(3, longest).astype("i4"), np.cumsum([0, *LENGTHS]).astype("i4")


def within_each(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray | None) -> np.ndarray:
    out, at = [], 0
    for i, length in enumerate(LENGTHS):
        part = slice(at, at + length)
        more = 0.0 if added is None else added[min(i, len(added) - 1), :, :length, :length]
        heads = [by_head(t[None, part]) for t in (q, k, v)]
        y = attention(heads[0], heads[1], heads[2], more)
        out.append(y.transpose(0, 2, 1, 3).reshape(length, -1))
        at += length
    return np.concatenate(out).astype("f4")


@pytest.mark.parametrize("added", [None, 1, 3])
def test_attention_of_a_packed_batch(added: int | None) -> None:
    offset, sums = packing(5)
    feed = {"x": x(10, 12), "o": offset, "s": sums} | ({"a": x(added, H, 5, 5)} if added else {})
    weights = {"w": x(12, 3 * W), "b": x(3 * W)}
    q, k, v = np.split(feed["x"] @ weights["w"] + weights["b"], 3, -1)
    wanted = within_each(q, k, v, feed.get("a"))
    made = node("PackedAttention", ["x", "w", "b", "o", "s", *(["a"] if added else [])], num_heads=H)
    agree(made, feed, weights=weights, wanted=[[wanted]], open={"x": ("N", 12)}, tolerance=LOOSE)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_of_a_packed_batch(bias: bool, together: bool) -> None:
    offset, sums = packing(6)
    q, k, v = x(10, W), x(10, W), x(10, W)
    b = x(3 * W) if bias else np.zeros(3 * W, "f4")
    biases = np.split(b, 3)
    wanted = within_each(q + biases[0], k + biases[1], v + biases[2], None)
    feed = {"q": np.stack([t.reshape(10, H, D) for t in (q, k, v)], 2)} if together else {"q": q, "k": k, "v": v}
    names = ["q", "", ""] if together else ["q", "k", "v"]
    made = node("PackedMultiHeadAttention", [*names, "b" if bias else "", "o", "s"], num_heads=H)
    agree(made, feed | {"o": offset, "s": sums}, weights={"b": b} if bias else {}, wanted=[[wanted]], tolerance=LOOSE)


def test_padding_goes_and_returns() -> None:
    offset, sums = packing(5)
    padded = x(3, 5, 7)
    for i, length in enumerate(LENGTHS):
        padded[i, length:] = 0
    tokens = np.concatenate([padded[i, :length] for i, length in enumerate(LENGTHS)])
    feed = {"x": padded, "n": np.array(LENGTHS, "i4")}
    made = node("RemovePadding", ["x", "n"], ["t", "o", "s", "m"])
    agree(made, feed, wanted=[[tokens, offset, sums, np.array([5], "i4")]])
    agree(node("RestorePadding", ["t", "o"]), {"t": tokens, "o": offset}, wanted=[[padded]], open={"t": ("N", 7)})


@pytest.mark.parametrize("both", [0, 1])
def test_bias_of_t5(both: int) -> None:
    table = x(32, H)
    distance = np.arange(40)[None] - np.arange(40)[:, None]
    count = 16 if both else 32
    bucket = (distance > 0) * count if both else np.zeros_like(distance)
    away = np.abs(distance) if both else -np.minimum(distance, 0)
    exact = count // 2
    far = exact + (np.log(np.maximum(away, 1) / exact) / np.log(64 / exact) * (count - exact)).astype(int)
    bucket = bucket + np.where(away < exact, away, np.minimum(far, count - 1))
    lengths = {"n": np.array(40)}
    made = node("RelativePositionBias", ["t", "n", "n"], max_distance=64, is_bidirectional=both)
    agree(made, {"t": table}, weights=lengths, wanted=[[table[bucket].transpose(2, 0, 1)[None]]])


def test_gated_bias() -> None:
    feed = {"q": x(2, 5, W), "b": x(W), "r": x(1, H, 5, 5), "w": x(D, 8), "s": x(8), "e": x(1, H, 1, 1)}
    query = by_head(feed["q"] + feed["b"])
    gates = 1 / (1 + np.exp(-(query @ feed["w"] + feed["s"]).reshape(2, H, 5, 2, 4).sum(-1)))
    wanted = (gates[..., :1] * (gates[..., 1:] * feed["e"] - 1) + 2) * feed["r"]
    agree(node("GatedRelativePositionBias", [*feed], num_heads=H), feed, wanted=[[wanted]], tolerance=LOOSE)
