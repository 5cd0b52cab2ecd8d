"""Every program of examples/harp gives what numpy gives, compiled for this CPU, at two sizes or more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tatami.api import build, prepare
from tatami.harp.fmt import format_text

FOLDER = Path(__file__).parents[2] / "examples" / "harp"
PROGRAMS = sorted(FOLDER.glob("*.harp"))
Arrays = dict[str, np.ndarray]
Case = tuple[Arrays, dict[str, int]]
"""Inputs, and the sizes that no input has."""

CASES: dict[str, tuple[Callable[[np.random.Generator], list[Case]], Callable[..., Any]]] = {}


def example(make: Callable[[np.random.Generator], list[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function below says in numpy what the program of its name means; `make` gives inputs of several sizes."""

    def put(oracle: Callable[..., Any]) -> Callable[..., Any]:
        def cases(rng: np.random.Generator) -> list[Case]:
            return [c if isinstance(c, tuple) else (c, {}) for c in make(rng)]

        CASES[oracle.__name__.rstrip("_")] = (cases, oracle)
        return oracle

    return put


def f32(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), np.float32)


def softmax_of(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@example(lambda r: [{"x": f32(r, *s)} for s in ((4, 16), (3, 1), (1, 129))])
def softmax(x):
    return {"y": softmax_of(x.astype(np.float64), 1)}


@example(lambda r: [{"x": f32(r, *s) + 3, "scale": f32(r, s[1]), "bias": f32(r, s[1])} for s in ((8, 64), (2, 7))])
def layer_norm(x, scale, bias):
    x = x.astype(np.float64)
    return {"y": (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + bias}


def _conv_net_inputs(r: np.random.Generator) -> list[Arrays]:
    weights = {
        "w1": f32(r, 8, 1, 3, 3) / 3,
        "b1": f32(r, 8),
        "w2": f32(r, 16, 8, 3, 3) / 9,
        "b2": f32(r, 16),
        "w3": f32(r, 10, 784) / 28,
        "b3": f32(r, 10),
    }
    return [{"image": f32(r, n, 1, 28, 28), **weights} for n in (2, 5)]


@example(_conv_net_inputs)
def conv_net(image, w1, b1, w2, b2, w3, b3):
    def block(x, w, b):
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        y = np.maximum(np.einsum("nchwij,kcij->nkhw", windows, w) + b[:, None, None], 0)
        n, k, h, w_ = y.shape
        return y.reshape(n, k, h // 2, 2, w_ // 2, 2).max((3, 5))

    x = block(block(image.astype(np.float64), w1, b1), w2, b2)
    logits = x.reshape(len(x), -1) @ w3.T + b3
    return {"probabilities": softmax_of(logits, 1), "class": logits.argmax(1)}


@example(
    lambda r: [
        {"x": f32(r, b, t, 32), "gain": f32(r, 32), "w_qkv": f32(r, 32, 96) / 6, "w_out": f32(r, 32, 32) / 6}
        for b, t in ((2, 8), (1, 13))
    ]
)
def attention(x, gain, w_qkv, w_out):
    x = x.astype(np.float64)
    normal = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain
    q, k, v = (h.reshape(*x.shape[:2], 4, 8).transpose(0, 2, 1, 3) for h in np.split(normal @ w_qkv, 3, 2))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(8)
    scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    return {"y": x + (softmax_of(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ w_out}


@example(lambda r: [{"alive": r.random(s) < 0.4} for s in ((16, 16), (5, 33))])
def life(alive):
    n = sum(np.roll(alive.astype(int), (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - alive
    return {"next": (n == 3) | (alive & (n == 2))}


@example(lambda r: [{"image": np.load(FOLDER / "china.npy")}, {"image": r.integers(0, 256, (7, 9)).astype(np.uint8)}])
def sobel(image):
    f = np.pad(image.astype(np.float64), 1, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(f, (3, 3))
    kernel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    dx, dy = ((windows * k).sum((2, 3)) for k in (kernel, kernel.T))
    return {"edges": np.clip(np.round(np.sqrt(dx * dx + dy * dy)), 0, 255).astype(np.uint8)}


def _kmeans_inputs(r: np.random.Generator) -> list[Arrays]:
    far = np.array([[90, 90]], np.float32)  # no point is near this one
    return [{"points": f32(r, n, 2), "centres": np.concatenate([f32(r, k - 1, 2), far])} for n, k in ((100, 4), (31, 3))]


@example(_kmeans_inputs)
def kmeans(points, centres):
    nearest = ((points[:, None].astype(np.float64) - centres) ** 2).sum(2).argmin(1)
    moved = [points[nearest == k].mean(0, dtype=np.float64) if (nearest == k).any() else c for k, c in enumerate(centres)]
    return {"moved": np.array(moved), "nearest": nearest}


@example(lambda r: [{"re": f32(r, b, 16), "im": f32(r, b, 16)} for b in (3, 1)])
def fft(re, im):
    out = np.fft.fft(re.astype(np.float64) + 1j * im, axis=1)
    return {"out_re": out.real, "out_im": out.imag}


@example(lambda r: [{"signal": f32(r, n)} for n in (32, 5, 100)])
def moving_average(signal):
    average = np.convolve(signal.astype(np.float64), np.full(5, 0.2), "valid")
    return {"average": average, "deviation": signal[2:-2] - average}


@example(
    lambda r: [({"x": np.append(r.random(n), [0, 1, -3, 4]).astype(np.float32)}, {"K": k}) for n, k in ((1000, 10), (50, 7))]
)
def histogram(x, K):
    count = np.bincount(np.clip(np.floor(x * np.float32(K)).astype(int), 0, K - 1), minlength=K)
    return {"count": count.astype(np.int32), "share": count / len(x)}


@example(lambda r: [{"image": f32(r, *s)} for s in ((32, 32), (3, 20))])
def box_filter(image):
    padded = np.pad(image.astype(np.float64), 2, mode="edge")
    return {"mean": np.lib.stride_tricks.sliding_window_view(padded, (5, 5)).mean((2, 3))}


@example(lambda r: [{"a": f32(r, n, n) / np.float32(2 * np.sqrt(n))} for n in (4, 9)])
def matrix_power(a):
    return {"power": np.linalg.matrix_power(a.astype(np.float64), 13)}


@example(lambda r: [({"u": f32(r, n), "r": np.float32(0.25)}, {"STEPS": t}) for n, t in ((64, 20), (9, 3))])
def heat(u, r, STEPS):
    u = u.astype(np.float64)
    for _ in range(STEPS):
        u = np.concatenate([u[:1], u[1:-1] + r * (u[:-2] - 2 * u[1:-1] + u[2:]), u[-1:]])
    return {"after": u}


@example(
    lambda r: [
        ({"left": np.float32(-2), "top": np.float32(1), "pixel": np.float32(p)}, {"H": h, "W": w})
        for h, w, p in ((24, 64, 0.0625), (9, 12, 0.25))
    ]
)
def mandelbrot(left, top, pixel, H, W):
    c_re = np.broadcast_to(left + np.arange(W, dtype=np.float32) * pixel, (H, W))
    c_im = np.broadcast_to((top - np.arange(H, dtype=np.float32) * pixel)[:, None], (H, W))
    re, im, count = np.zeros((H, W), np.float32), np.zeros((H, W), np.float32), np.zeros((H, W), np.int32)
    for _ in range(50):
        inside = re * re + im * im <= 4
        re, im = np.where(inside, re * re - im * im + c_re, re), np.where(inside, re * im * 2 + c_im, im)
        count += inside
    return {"count": count}


@example(lambda r: [{"logits": f32(r, b, v) * 2, "p": np.float32(0.8)} for b, v in ((2, 50), (1, 5))])
def top_p(logits, p):
    all_ = softmax_of(logits.astype(np.float64), 1)
    order = np.argsort(-all_, axis=1)
    sorted_ = np.take_along_axis(all_, order, 1)
    kept = np.zeros_like(all_)
    np.put_along_axis(kept, order, np.where(np.cumsum(sorted_, 1) - sorted_ < p, sorted_, 0), 1)
    return {"probability": kept / kept.sum(1, keepdims=True)}


@example(lambda r: [{"query": f32(r, q, d), "data": f32(r, 100, d)} for q, d in ((4, 8), (1, 5))])
def search(query, data):
    def unit(x):
        return x.astype(np.float64) / np.linalg.norm(x, axis=1, keepdims=True)

    all_ = unit(query) @ unit(data).T
    place = np.argsort(-all_, axis=1)[:, :3]
    return {"similarity": np.take_along_axis(all_, place, 1), "place": place}


@example(lambda r: [{"g": f32(r, n), "limit": np.float32(limit)} for n, limit in ((16, 1), (16, 100), (3, 0.5))])
def clip_norm(g, limit):
    length = np.linalg.norm(g.astype(np.float64))
    return {"clipped": g * min(1.0, limit / length), "length": length}


def _power_inputs(r: np.random.Generator) -> list[Arrays]:
    out = []
    for n in (8, 3):
        q = np.linalg.qr(r.standard_normal((n, n)))[0]
        a = (q * np.linspace(5, 1, n)) @ q.T
        out.append({"a": a.astype(np.float32), "start": q.sum(1).astype(np.float32), "tolerance": np.float32(1e-7)})
    return out


@example(_power_inputs)
def power_iteration(a, start, tolerance):
    values, vectors = np.linalg.eigh(a.astype(np.float64))
    vector = vectors[:, -1]
    return {"value": values[-1], "vector": vector * np.sign(vector @ start)}


@example(
    lambda r: [
        {
            "keys": f32(r, s, d),
            "values": f32(r, s, d),
            "query": f32(r, d),
            "key": f32(r, d),
            "value": f32(r, d),
            "position": np.int64(p),
        }
        for s, d, p in ((16, 8, 5), (4, 8, 0))
    ]
)
def kv_cache(keys, values, query, key, value, position):
    keys, values = keys.copy(), values.copy()
    keys[position], values[position] = key, value
    scores = keys[: position + 1].astype(np.float64) @ query / np.sqrt(8)
    weights = softmax_of(scores, 0)
    return {"mixed": weights @ values[: position + 1], "keys": keys, "values": values}


LOOSE = {"power_iteration": 2e-3}
"""A value found by iteration is as good as its tolerance."""


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_a_program_gives_what_numpy_gives(path: Path) -> None:
    make, oracle = CASES[path.stem]
    compilation = prepare(path)
    for inputs, sizes in make(np.random.default_rng(7)):
        expected = oracle(**inputs, **sizes)
        given = {k: np.array(v) for k, v in inputs.items()}
        results = build(compilation, 2, sizes)(given)
        tolerance = LOOSE.get(path.stem, 2e-5)
        for name, want in expected.items():
            got = results[name] if name in results else given[name]  # an input updated in place
            assert got.shape == np.shape(want), name
            if np.asarray(want).dtype.kind in "iub":
                assert np.array_equal(got, want), name
            else:
                assert np.allclose(got, want, rtol=tolerance, atol=tolerance), (name, np.abs(got - want).max())


def test_every_program_has_its_meaning_in_numpy() -> None:
    assert {p.stem for p in PROGRAMS} == set(CASES)
    assert len(PROGRAMS) >= 12


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_programs_are_formatted(path: Path) -> None:
    text = path.read_text()
    assert format_text(text) == text
