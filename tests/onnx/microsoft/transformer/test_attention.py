"""Attention, QAttention and MultiHeadAttention against ONNX Runtime: masks of all forms, caches, packings, biases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, model_of, node, run_onnxruntime

RNG = np.random.default_rng(10)
H, D = 3, 8
LOOSE = (1e-4, 1e-4)
ALL = ("y", "k", "v")


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def mask_of(form: str, b: int, s: int, t: int) -> np.ndarray:
    ends, starts = RNG.integers(1, t + 1, b), np.zeros(b, "i8")
    if form == "ends and starts":
        starts = np.array([RNG.integers(0, e) for e in ends])
        return np.concatenate([ends, starts]).astype("i4")
    if form == "lengths":
        return ends.astype("i4")
    raw = (np.arange(t) < ends[:, None]).astype("i4")
    return raw if form == "keys" else np.ascontiguousarray(np.tril(np.ones((s, t), "i4"), t - s) * raw[:, None])


MASKS = ["none", "lengths", "ends and starts", "keys", "queries and keys"]


@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("form", MASKS)
def test_attention(form: str, causal: int, past: int) -> None:
    """Batch and length stay open where no vector of lengths has to say which form it has."""
    feeds = []
    for b, s in ((2, 5), (3, 1)):
        feed = {"x": x(b, s, 12)}
        if form != "none":
            feed["m"] = mask_of(form, b, s, past + s)
        if past:
            feed["p"] = x(2, b, H, past, D)
        feeds.append(feed)
    weights = {"w": x(12, 3 * H * D), "b": x(3 * H * D)}
    made = node(
        "Attention",
        ["x", "w", "b", "m" if form != "none" else "", "p" if past else ""],
        ["y", "present"] if past else ["y"],
        num_heads=H,
        unidirectional=causal,
    )
    if form == "ends and starts":
        for feed in feeds:
            agree(made, feed, weights=weights, tolerance=LOOSE)
        return
    shapes = {"x": ("B", "S", 12), "p": (2, "B", H, past, D)}
    if form != "none":
        shapes["m"] = {"lengths": ("B",), "keys": ("B", "T"), "queries and keys": ("B", "S", "T")}[form]
    agree(made, *feeds, weights=weights, open=shapes, tolerance=LOOSE)


@pytest.mark.parametrize("given", [{"scale": 0.3}, {"mask_filter_value": -50.0}, {"qkv_hidden_sizes": [24, 24, 15]}])
@pytest.mark.parametrize("added", [(2, H, 4, 4), (1, 1, 4, 4)])
def test_attributes_and_bias(added: tuple[int, ...], given: dict[str, Any]) -> None:
    width = sum(given.get("qkv_hidden_sizes", [24] * 3))
    feed = {"x": x(2, 4, 12), "m": mask_of("keys", 2, 4, 4), "a": x(*added)}
    made = node("Attention", ["x", "w", "b", "m", "", "a"], num_heads=H, **given)
    agree(made, feed, weights={"w": x(12, width), "b": x(width)}, tolerance=LOOSE)


def test_a_cache_of_open_length() -> None:
    feeds = [{"x": x(2, s, 12), "p": x(2, 2, H, p, D)} for s, p in ((3, 0), (1, 3), (1, 4))]
    made = node("Attention", ["x", "w", "b", "", "p"], ["y", "present"], num_heads=H, unidirectional=1)
    weights = {"w": x(12, 3 * H * D), "b": x(3 * H * D)}
    agree(made, *feeds, weights=weights, open={"x": ("B", "S", 12), "p": (2, "B", H, "P", D)}, tolerance=LOOSE)


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("causal", [0, 1])
def test_quantised_attention(causal: int, columns: bool, past: int) -> None:
    count = (3 * H * D,) if columns else ()
    feed = {"x": RNG.integers(0, 200, (2, 4, 12)).astype("u1"), "m": mask_of("lengths", 2, 4, past + 4)}
    feed |= {"p": x(2, 2, H, past, D)} if past else {}
    weights = {
        "w": RNG.integers(-60, 60, (12, 3 * H * D)).astype("i1"), "b": x(3 * H * D), "xs": np.array(0.01, "f4"),
        "ws": RNG.uniform(0.01, 0.02, count).astype("f4"), "xz": np.array(90, "u1"), "wz": np.zeros(count, "i1"),
    }  # fmt: skip
    operands = ["x", "w", "b", "xs", "ws", "m", "xz", "wz", *(["p"] if past else [])]
    made = node("QAttention", operands, ["y", "present"] if past else ["y"], num_heads=H, unidirectional=causal)
    agree(made, feed, weights=weights, tolerance=LOOSE)


def test_quantised_attention_over_the_whole_range() -> None:
    """Against Attention of the numbers that the codes stand for: ONNX Runtime's products of 8 bits may saturate."""
    weights = {
        "w": RNG.integers(-128, 128, (12, 3 * H * D)).astype("i1"), "b": x(3 * H * D), "xs": np.array(0.01, "f4"),
        "ws": RNG.uniform(0.01, 0.02, 3 * H * D).astype("f4"), "xz": np.array(90, "u1"), "wz": np.zeros(3 * H * D, "i1"),
    }  # fmt: skip
    weights["numbers"] = weights["w"] * weights["ws"]
    codes = RNG.integers(0, 256, (2, 5, 12)).astype("u1")
    agree(
        node("QAttention", ["x", "w", "b", "xs", "ws", "", "xz", "wz"], num_heads=H),
        {"x": codes},
        weights=weights,
        like=node("Attention", ["x", "numbers", "b"], num_heads=H),
        like_feeds=[{"x": ((codes - np.float32(90)) * np.float32(0.01)).astype("f4")}],
        tolerance=LOOSE,
    )


PACKINGS = ["apart", "keys and values", "all", "by head"]


def operands(packing: str, b: int, s: int, t: int) -> dict[str, np.ndarray]:
    if packing == "all":
        return {"q": x(b, s, H, 3, D)}
    if packing == "keys and values":
        return {"q": x(b, s, H * D), "kv": x(b, t, H, 2, D)}
    if packing == "by head":
        return {"q": x(b, s, H * D), "key": x(b, H, t, D), "value": x(b, H, t, D)}
    return {"q": x(b, s, H * D), "key": x(b, t, H * D), "value": x(b, t, H * D)}


def apart(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Packed operands one by one: ONNX Runtime's CPU takes no other form."""

    def flat(t: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(t).reshape(*t.shape[:2], -1)

    out = {k: v for k, v in feed.items() if k != "kv"}
    if feed["q"].ndim == 5:
        out |= {k: flat(feed["q"][:, :, :, i]) for i, k in enumerate(("q", "key", "value"))}
    if "kv" in feed:
        out |= {k: flat(feed["kv"][:, :, :, i]) for i, k in enumerate(("key", "value"))}
    return out


@pytest.mark.parametrize("form", ["none", "lengths", "keys", "queries and keys"])
@pytest.mark.parametrize("packing", PACKINGS)
def test_multi_head_attention(packing: str, form: str) -> None:
    feeds = []
    for b, s, t in ((2, 4, 6), (1, 3, 5)):
        t = s if packing == "all" else t
        feed = operands(packing, b, s, t)
        feeds.append(feed | ({"m": mask_of(form, b, s, t)} if form != "none" else {}))
    names = [*[n for n in feeds[0] if n != "m"], "", ""][:3]
    rest = ["", "m" if form != "none" else ""]
    made = node("MultiHeadAttention", [*names, *rest], num_heads=H)
    like = node("MultiHeadAttention", ["q", "key", "value", *rest], num_heads=H)
    for feed in feeds:
        agree(made, feed, like=like, like_feeds=[apart(feed)], tolerance=LOOSE)


@pytest.mark.parametrize("packing", ["apart", "keys and values", "all"])
def test_bias_of_the_projection(packing: str) -> None:
    feed = operands(packing, 2, 4, 4)
    names = [*feed, "", ""][:3]
    made = node("MultiHeadAttention", [*names, "b"], num_heads=H)
    like = node("MultiHeadAttention", ["q", "key", "value", "b"], num_heads=H)
    agree(made, feed, weights={"b": x(3 * H * D)}, like=like, like_feeds=[apart(feed)], tolerance=LOOSE)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("added", [None, (2, H), (1, 1)])
def test_keys_and_values_of_a_cache(added: tuple[int, int] | None, causal: int, bias: bool) -> None:
    feeds = []
    for s, p in ((3, 2), (1, 5)):
        feed = operands("apart", 2, s, s) | {"pk": x(2, H, p, D), "pv": x(2, H, p, D)}
        feeds.append(feed | ({"a": x(*added, s, p + s)} if added else {}))
    names = ["q", "key", "value", "b" if bias else "", "", "a" if added else "", "pk", "pv"]
    made = node("MultiHeadAttention", names, ALL, num_heads=H, unidirectional=causal)
    shapes: dict[str, Any] = dict.fromkeys(("q", "key", "value"), ("B", "S", H * D))
    shapes |= dict.fromkeys(("pk", "pv"), ("B", H, "P", D)) | {"a": (*(added or ()), "S", "T")}
    agree(made, *feeds, weights={"b": x(3 * H * D)} if bias else {}, open=shapes, tolerance=LOOSE)


def test_values_of_another_width_and_open_keys() -> None:
    feeds = [{"q": x(2, 4, H * D), "key": x(2, t, H * D), "value": x(2, t, H * 5)} for t in (3, 7)]
    made = node("MultiHeadAttention", ["q", "key", "value"], num_heads=H, scale=0.2)
    agree(made, *feeds, open={"q": ("B", 4, H * D), "key": ("B", "T", H * D), "value": ("B", "T", H * 5)}, tolerance=LOOSE)


def test_scores_as_a_result() -> None:
    feed = operands("apart", 2, 3, 3) | {"pk": x(2, H, 2, D), "pv": x(2, H, 2, D)}
    made = node(
        "MultiHeadAttention", ["q", "key", "value", "", "", "", "pk", "pv"], [*ALL, "scores"], num_heads=H, unidirectional=1
    )
    agree(made, feed, tolerance=LOOSE, typed={"scores": 1})


@pytest.mark.parametrize("beams", [True, False])
def test_one_token_with_a_shared_buffer(beams: bool) -> None:
    """The keys of this step go to row `past` of the cache; beams read each other's rows before it."""
    past = 5
    feed = operands("apart", 4, 1, 1) | {"pk": x(4, H, 9, D), "pv": x(4, H, 9, D), "past": np.array([past], "i4")}
    for cache in ("pk", "pv"):
        feed[cache][:, :, past:] = 0
    source = np.tile(np.arange(2)[None, :, None], (2, 1, 9))
    source = RNG.integers(0, 2, (2, 2, 9)) if beams else source
    feed["ci"] = source.astype("i4")
    made = node("MultiHeadAttention", ["q", "key", "value", "", "", "", "pk", "pv", "past", "ci"], ALL, num_heads=H)
    agree(made, feed, tolerance=LOOSE)


@pytest.mark.parametrize("causal", [0, 1])
def test_a_shared_buffer_of_several_tokens(causal: int) -> None:
    """Results are those of a cache that grows, in a buffer of nine rows."""
    past, s = 4, 3
    feed = operands("apart", 2, s, s) | {"pk": x(2, H, 9, D), "pv": x(2, H, 9, D), "past": np.array([past], "i4")}
    grown = {**feed, "pk": feed["pk"][:, :, :past].copy(), "pv": feed["pv"][:, :, :past].copy()}
    del grown["past"]
    names = ["q", "key", "value", "", "", "", "pk", "pv"]
    made = node("MultiHeadAttention", [*names, "past"], ALL, num_heads=H, unidirectional=causal)
    like = node("MultiHeadAttention", names, ALL, num_heads=H, unidirectional=causal)
    agree(made, feed, like=like, like_feeds=[grown], outputs=["y"], tolerance=LOOSE)


@pytest.mark.parametrize("filtered", [-10000.0, -3.4028234663852886e38])
@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_half_precision(op: str, filtered: float) -> None:
    """ONNX Runtime's CPU computes these in fp32 only: its results there, of the same numbers, are what is wanted."""
    if op == "Attention":
        feed: dict[str, Any] = {"x": x(2, 4, 12), "w": 0.3 * x(12, 3 * H * D), "b": x(3 * H * D)}
        names = ["x", "w", "b", "m"]
    else:
        feed, names = operands("apart", 2, 4, 4), ["q", "key", "value", "", "m"]
    second = [0, 0, 0, 0] if filtered > -65504 else [0, 1, 0, 1]  # without any key it depends on how scores round
    feed |= {"m": np.array([[1, 1, 1, 0], second], "i4")}
    half = {k: v if k == "m" else v.astype("f2") for k, v in feed.items()}
    full = {k: v if k == "m" else v.astype("f4") for k, v in half.items()}
    made = node(op, names, num_heads=H, mask_filter_value=filtered)
    (wanted,) = run_onnxruntime(model_of([made], full, {"y": (1, ["a", "b", "c"])}), full)
    agree(made, half, wanted=[[wanted.astype("f2")]], tolerance=(1e-2, 1e-2))
