"""Inputs that mean something to a trained model, from a seeded generator: pictures, pages, sound, numbers of tokens.

A maker takes (generator, shape, sizes) and gives an array of any dtype; `InputArray` casts it to the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Maker: TypeAlias = Callable[[np.random.Generator, tuple[int, ...], Mapping[str, int]], np.ndarray]
SAMPLES_PER_SECOND = 16000
"""Rate that tones of `sound` are written for, in Hz; most speech models take it."""


@dataclass(frozen=True)
class InputArray:
    """One input of a model. shape: numbers, and names of axes that `sizes` of a row give."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    make: Maker

    def array(self, generator: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
        shape = tuple(sizes[n] if isinstance(n, str) else n for n in self.shape)
        return np.asarray(self.make(generator, shape, sizes)).astype(self.dtype, order="C")


def picture(least: float = 0.0, greatest: float = 1.0, channels: int = 1) -> Maker:
    """Smooth patches with some grain, from `least` to `greatest`. channels: the axis of colours, counted from the batch."""

    def make(generator: np.random.Generator, shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
        *batch, height, width = shape if channels == 1 else (*shape[:-3], shape[-1], *shape[-3:-1])
        coarse = generator.uniform(size=(*batch, -(-height // 8), -(-width // 8)))
        smooth = np.repeat(np.repeat(coarse, 8, axis=-2), 8, axis=-1)[..., :height, :width]
        grain = generator.uniform(-0.1, 0.1, smooth.shape)
        image = least + (greatest - least) * np.clip(smooth + grain, 0, 1)
        return image if channels == 1 else np.moveaxis(image, -3, -1)

    return make


def page(least: float = 0.0, greatest: float = 1.0) -> Maker:
    """Dark strokes in lines on bright paper, as a detector or reader of text meets them."""

    def make(generator: np.random.Generator, shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
        *batch, _, height, width = shape
        paper = generator.uniform(0.85, 1.0, (*batch, 1, height, width))
        line = min(height, 32)
        for top in range(line // 4, height - line // 2, line):
            ink = generator.uniform(size=(*batch, 1, line // 2, width)) < 0.25
            thick = ink | np.roll(ink, 1, axis=-1) | np.roll(ink, 1, axis=-2)
            gap = np.repeat(generator.uniform(size=(*batch, 1, 1, -(-width // 12))) < 0.3, 12, axis=-1)[..., :width]
            paper[..., top : top + line // 2, :] -= 0.8 * (thick & ~gap)
        return np.broadcast_to(least + (greatest - least) * np.clip(paper, 0, 1), shape)

    return make


def sound(loudness: float = 0.3) -> Maker:
    """Tones of a voice with overtones, falling and rising, and a little noise; time is the last axis."""

    def make(generator: np.random.Generator, shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
        time = np.arange(shape[-1]) / SAMPLES_PER_SECOND
        pitch = generator.uniform(100, 250, (*shape[:-1], 1))
        phase = 2 * np.pi * pitch * (time + 0.02 * np.sin(6 * time))
        tones = sum(np.sin(k * phase) / k for k in range(1, 6))
        noise = generator.normal(0, 0.05, shape)
        return loudness * (tones / 2 + noise)

    return make


def normal(deviation: float = 1.0, mean: float = 0.0) -> Maker:
    return lambda generator, shape, sizes: generator.normal(mean, deviation, shape)


def uniform(least: float, greatest: float) -> Maker:
    return lambda generator, shape, sizes: generator.uniform(least, greatest, shape)


def tokens(end: int, first: int = 0) -> Maker:
    """Integers from `first` to `end` - 1: numbers of tokens, characters, bytes, classes."""
    return lambda generator, shape, sizes: generator.integers(first, end, shape)


def places(axis: str) -> Maker:
    """Integers that point into an axis: nodes of a graph."""
    return lambda generator, shape, sizes: generator.integers(0, sizes[axis], shape)


def edges(axis: str) -> Maker:
    """Edges between two different nodes of an axis: sources in row 0, targets in row 1."""

    def make(generator: np.random.Generator, shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
        source = generator.integers(0, sizes[axis], shape[1])
        return np.stack([source, (source + generator.integers(1, sizes[axis], shape[1])) % sizes[axis]])

    return make


def lengths(axis: str) -> Maker:
    """The size of an axis: sequences that fill it."""
    return lambda generator, shape, sizes: np.full(shape, sizes[axis])


def full(value: float) -> Maker:
    return lambda generator, shape, sizes: np.full(shape, value)


def given(*values: float) -> Maker:
    return lambda generator, shape, sizes: np.asarray(values).reshape(shape)


def one_of(count: int) -> Maker:
    """One-hot rows over the last axis."""
    return lambda generator, shape, sizes: np.eye(count)[generator.integers(0, count, shape[:-1])]


def unit() -> Maker:
    """Vectors of length one over the last axis: embeddings of speakers."""

    def make(generator: np.random.Generator, shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
        vectors = generator.normal(size=shape)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))

    return make


def distances(greatest: int) -> Maker:
    """Distances of nodes along a chain, `greatest` at most, with 0 on the diagonal."""

    def make(generator: np.random.Generator, shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
        places = np.arange(shape[-1])
        return np.broadcast_to(np.minimum(abs(places[:, None] - places), greatest), shape)

    return make


MOST_DRAWS, MOST_BYTES = 256, 1 << 20
"""Most feeds of one size, and the bytes that they fill together."""


def draws_of(inputs: tuple[InputArray, ...], sizes: Mapping[str, int], seed: int) -> list[dict[str, Any]]:
    """Feeds of a model at the given sizes: all inputs, drawn as often as MOST_DRAWS and MOST_BYTES allow, at least once. Calls
    that are timed take one after another: of a few rows that come again and again a processor learns every branch."""
    generator = np.random.default_rng(seed)
    feeds = [{i.name: i.array(generator, sizes) for i in inputs}]
    size = max(1, sum(np.asarray(a).nbytes for a in feeds[0].values()))
    count = max(1, min(MOST_DRAWS, MOST_BYTES // size))
    return feeds + [{i.name: i.array(generator, sizes) for i in inputs} for _ in range(count - 1)]


def arrays_of(inputs: tuple[InputArray, ...], sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """All inputs of a model at the given sizes: the first feed of `draws_of`."""
    generator = np.random.default_rng(seed)
    return {i.name: i.array(generator, sizes) for i in inputs}
