"""GroupQueryAttention and RotaryEmbedding against ONNX Runtime: prompts, steps, caches that grow or are shared buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tatami as tt
from tests.onnx.microsoft.against_onnxruntime import agree, model_of, node, run_onnxruntime

RNG = np.random.default_rng(12)
H, G, D = 4, 2, 32
LOOSE = {"f4": (1e-4, 1e-4), "f2": (1e-2, 1e-2)}
MOST = 24
"""Positions of the rotary tables."""


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def tables(width: int = D, dtype: str = "f4") -> dict[str, np.ndarray]:
    angle = np.arange(MOST)[:, None] / 100.0 ** (np.arange(width // 2) / (width // 2))
    return {"cos": np.cos(angle).astype(dtype), "sin": np.sin(angle).astype(dtype)}


def step(s: int, lengths: list[int], cache: int, *, packed: bool = False, dtype: str = "f4") -> dict[str, np.ndarray]:
    """One call: `lengths` keys per entry of the batch after it, a cache of `cache` rows before it."""
    b = len(lengths)
    feed = {"q": x(b, s, (H + 2 * G) * D, dtype=dtype)} if packed else {"q": x(b, s, H * D, dtype=dtype)}
    feed |= {} if packed else {k: x(b, s, G * D, dtype=dtype) for k in ("key", "value")}
    feed |= {k: x(b, G, cache, D, dtype=dtype) for k in ("pk", "pv")} if cache else {}
    return feed | {"len": np.array(lengths, "i4") - 1, "total": np.array(max(lengths), "i4")}


def gqa(feed: dict[str, Any], extra: dict[int, str] | None = None, results: int = 3, **given: Any) -> Any:
    operands = ["q", *(k if k in feed else "" for k in ("key", "value", "pk", "pv")), "len", "total"]
    for at, name in (extra or {}).items():
        operands += [""] * (at + 1 - len(operands))
        operands[at] = name
    return node("GroupQueryAttention", operands, ["y", "k", "v", "scores"][:results], num_heads=H, kv_num_heads=G, **given)


OPEN = {
    "q": ("B", "S", H * D), "key": ("B", "S", G * D), "value": ("B", "S", G * D), "pk": ("B", G, "P", D), "pv": ("B", G, "P", D),
    "len": ("B",), "total": (),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rotary", [0, 1])
def test_a_prompt_without_a_cache(rotary: int, packed: bool, dtype: str) -> None:
    feed = step(5, [5, 5], 0, packed=packed, dtype=dtype)
    made = gqa(feed, {7: "cos", 8: "sin"} if rotary else {}, do_rotary=rotary)
    agree(made, feed, weights=tables(dtype=dtype) if rotary else {}, tolerance=LOOSE[dtype])


@pytest.mark.parametrize("given", [{}, {"softcap": 5.0}, {"local_window_size": 3}, {"scale": 0.4}, {"smooth_softmax": 1}])
@pytest.mark.parametrize("rotary", [0, 1])
def test_a_cache_that_grows(rotary: int, given: dict[str, Any]) -> None:
    """A prompt and steps by one program: batch, length and cache are open."""
    feeds = [step(6, [6, 6], 4), step(1, [9, 9], 8), step(1, [5], 4), step(3, [7], 4)]
    feeds[0] = step(6, [6, 6], 0) | {k: np.zeros((2, G, 0, D), "f4") for k in ("pk", "pv")}
    made = gqa(feeds[1], {7: "cos", 8: "sin"} if rotary else {}, do_rotary=rotary, **given)
    agree(made, *feeds, weights=tables() if rotary else {}, open=OPEN, tolerance=LOOSE["f4"])


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_entries_of_several_lengths_in_a_shared_buffer(interleaved: int, rotary: int) -> None:
    """Rows of the cache that hold no key are 0, as ONNX Runtime leaves them where it may not share memory."""
    made = gqa(step(1, [1, 1], 12), {7: "cos", 8: "sin"} if rotary else {}, do_rotary=rotary, rotary_interleaved=interleaved)
    for feed in (step(1, [9, 4], 12), step(1, [12, 2], 12), step(5, [5, 5], 12)):
        used = np.where(feed["q"].shape[1] == feed["total"], 0, feed["len"] + 1 - feed["q"].shape[1])
        for cache in ("pk", "pv"):
            feed[cache] *= (np.arange(12) < used[:, None])[:, None, :, None]
        agree(made, feed, weights=tables() if rotary else {}, open=OPEN, tolerance=LOOSE["f4"])


@pytest.mark.parametrize("width", [16, D])
def test_positions_and_partial_rotation(width: int) -> None:
    feed = step(4, [4, 4], 0) | {"ids": np.tile(np.arange(4), (2, 1))}
    made = gqa(feed, {7: "cos", 8: "sin", 9: "ids"}, do_rotary=1)
    agree(made, feed, weights=tables(width), tolerance=LOOSE["f4"])


@pytest.mark.parametrize("cache", [0, 6])
@pytest.mark.parametrize("rows", [(2, H), (1, 1)])
def test_attention_bias_and_sink(rows: tuple[int, int], cache: int) -> None:
    feed = step(1, [7, 7], cache) if cache else step(7, [7, 7], 0)
    feed |= {"bias": x(*rows, feed["q"].shape[1], 7)}
    agree(gqa(feed, {10: "bias"}), feed, tolerance=LOOSE["f4"])
    agree(gqa(feed, {10: "bias", 11: "sink"}), feed, weights={"sink": x(H)}, tolerance=LOOSE["f4"])


@pytest.mark.parametrize("shown", [1, 2])
def test_scores_as_a_result(shown: int) -> None:
    feed = step(5, [5, 5], 0)
    agree(gqa(feed, results=4, qk_output=shown), feed, tolerance=LOOSE["f4"], typed={"scores": 1})


def test_not_causal() -> None:
    feed = step(5, [5, 5], 0)
    agree(gqa(feed, causal=0), feed, tolerance=LOOSE["f4"])


def test_heads_by_their_root_mean_square() -> None:
    """No CPU kernel takes the weights, so the operands are normalised beforehand."""
    feed, weights = step(4, [4, 4], 0), {"wq": x(D), "wk": x(D)}

    def normal(t: np.ndarray, w: np.ndarray) -> np.ndarray:
        by_head = t.reshape(*t.shape[:2], -1, D).astype("f8")
        return (by_head / np.sqrt((by_head**2).mean(-1, keepdims=True) + 1e-6) * w).reshape(t.shape).astype("f4")

    plain = {**feed, "q": normal(feed["q"], weights["wq"]), "key": normal(feed["key"], weights["wk"])}
    agree(gqa(feed, {14: "wq", 15: "wk"}), feed, weights=weights, like=gqa(feed), like_feeds=[plain], tolerance=LOOSE["f4"])


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("ids", ["first", "each"])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embedding(rank: int, ids: str, interleaved: int, dtype: str) -> None:
    feeds = []
    for b, s in ((2, 5), (1, 3)):
        place = np.array([4]) if ids == "first" else RNG.integers(0, MOST, (b, s))
        feeds.append({"x": x(*((b, s, H * D) if rank == 3 else (b, H, s, D)), dtype=dtype), "ids": place})
    shapes: dict[str, Any] = {"x": ("B", "S", H * D) if rank == 3 else ("B", H, "S", D)}
    shapes |= {"ids": (1,) if ids == "first" else ("B", "S")}
    made = node("RotaryEmbedding", ["x", "ids", "cos", "sin"], interleaved=interleaved)
    agree(made, *feeds, weights=tables(dtype=dtype), open=shapes)


def test_rotation_of_a_part_of_each_head() -> None:
    made = node("RotaryEmbedding", ["x", "ids", "cos", "sin"], num_heads=H, rotary_embedding_dim=16)
    agree(made, {"x": x(2, 5, H * D), "ids": np.array([3])}, weights=tables(16))


def test_rotation_by_angles() -> None:
    feed = {"a": x(2, 5, D), **{k: x(2, H, 5, D, dtype="f2") for k in ("q", "qr", "k", "kr")}}
    cos, sin = (f(feed["a"]).astype("f2")[:, None].astype("f4") for f in (np.cos, np.sin))
    wanted = [(feed[k] * cos + feed[f"{k}r"] * sin).astype("f2") for k in ("q", "k")]
    agree(node("GemmaRotaryEmbedding", [*feed], ["y", "z"]), feed, wanted=[wanted])


def test_lengths_from_a_mask_as_generators_write_them() -> None:
    """total_sequence_length is the mask's own size, so nothing waits for data; prompt and steps are one program."""
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "at"], ["long"], axis=0),
        helper.make_node("Cast", ["long"], ["total"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axis"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["len"], to=TensorProto.INT32),
        gqa(step(1, [1], 8), {7: "cos", 8: "sin"}, do_rotary=1),
    ]
    feeds = []
    for s, past in ((6, 0), (1, 6), (1, 7)):
        feed = step(s, [past + s] * 2, past)
        feed |= {} if past else {k: np.zeros((2, G, 0, D), "f4") for k in ("pk", "pv")}
        feeds.append({k: v for k, v in feed.items() if k not in ("len", "total")} | {"mask": np.ones((2, past + s), "i8")})
    weights = tables() | {"at": np.array(1), "axis": np.array([1]), "one": np.array([1])}
    agree(nodes, *feeds, weights=weights, open=OPEN | {"mask": ("B", "T")}, tolerance=LOOSE["f4"])


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("capacity", [4, 6])
def test_a_cache_as_long_as_its_window(capacity: int, rotary: int) -> None:
    """A prompt, then one token after the other, each with the cache the step before left: rows are dropped at the front."""
    made = gqa(
        step(1, [1], 4), {7: "cos", 8: "sin"} if rotary else {}, do_rotary=rotary, local_window_size=4, sliding_window_cache=1
    )
    cache: dict[str, np.ndarray] = {k: np.zeros((1, G, capacity, D), "f4") for k in ("pk", "pv")}
    weights = tables() if rotary else {}
    shapes = {"q": ("B", "S", H * D), "key": ("B", "S", G * D), "value": ("B", "S", G * D), "len": ("B",), "total": ()}
    feeds, wanted, total = [], [], 0
    for s in (5, 1, 1, 1, 3, 1):
        total += s
        feeds.append(step(s, [total], capacity) | cache)
        out = run_onnxruntime(
            model_of([made], feeds[-1], {n: (1, ["a", "b", "c", "d"][: 3 + (n != "y")]) for n in "ykv"}, weights), feeds[-1]
        )
        resident = total if total <= capacity else total - (capacity - 3) * -(-(total - capacity) // (capacity - 3))
        cache = {
            k: np.where(np.arange(capacity)[:, None] < resident, t, 0).astype("f4")
            for k, t in zip(("pk", "pv"), out[1:], strict=True)
        }
        wanted.append([out[0], *cache.values()])
    model = model_of([made], feeds[0], {n: (1, [f"{n}{i}" for i in range(3 + (n != "y"))]) for n in "ykv"}, weights, shapes)
    program = tt.compile(model, threads=1)
    for feed, (y, k, v) in zip(feeds, wanted, strict=True):
        got = program(feed)
        np.testing.assert_allclose(np.asarray(got["y"]), y, 1e-4, 1e-4)
        for name, rows in (("k", k), ("v", v)):
            used = np.any(rows != 0, axis=(1, 3), keepdims=True)
            np.testing.assert_allclose(np.where(used, np.asarray(got[name]), 0), rows, 1e-4, 1e-4)


@pytest.mark.parametrize("rotary", [0, 1])
def test_chunks_with_padding_at_their_end(rotary: int) -> None:
    """Only the valid rows of the result are compared, and the rows of the cache that hold keys."""
    valid, lengths = np.array([3, 1], "i4"), [7, 5]
    feed = step(4, lengths, 9) | {"valid": valid}
    feed["total"] = np.array(9, "i4")
    for cache in ("pk", "pv"):
        feed[cache] *= (np.arange(9) < (np.array(lengths) - valid)[:, None])[:, None, :, None]
    made = gqa(feed, ({7: "cos", 8: "sin"} if rotary else {}) | {16: "valid"}, do_rotary=rotary)
    weights = tables() if rotary else {}
    ports = {n: (1, ["a", "b", "c", "d"][: 3 + (n != "y")]) for n in "ykv"}
    model = model_of([made], feed, ports, weights)
    wanted, got = run_onnxruntime(model, feed), tt.compile(model, threads=1)(feed)
    for b, (count, length) in enumerate(zip(valid, lengths, strict=True)):
        np.testing.assert_allclose(np.asarray(got["y"])[b, :count], wanted[0][b, :count], 1e-4, 1e-4)
        for i, name in enumerate("kv", 1):
            np.testing.assert_allclose(np.asarray(got[name])[b, :, :length], wanted[i][b, :, :length], 1e-4, 1e-4)
