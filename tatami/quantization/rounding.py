"""Weights as codes and scales, each rounded to the nearest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Codes(NamedTuple):
    """A matrix [K, N] as signed codes [K, N] in int8 and scales [blocks, N] in the weights' own type: value = code * scale."""

    codes: np.ndarray
    scales: np.ndarray
    block: int

    def values(self) -> np.ndarray:
        """The matrix that the codes stand for, in fp64."""
        scales = np.repeat(self.scales.astype(np.float64), self.block, axis=0)[: len(self.codes)]
        values: np.ndarray = self.codes * scales
        return values


def rounded(weights: np.ndarray, bits: int, block: int) -> Codes:
    """The codes of a matrix [K, N], with a scale for each `block` of K (0: for all of it).

    4 bits reach from -8 to 7: the number with the greatest magnitude becomes -8, so that no code is wasted. 8 bits reach from
    -127 to 127, since integer products are exact with these.

    >>> rounded(np.array([[7.0], [-8.0], [3.4]], np.float32), 4, 0).codes.ravel().tolist()
    [7, -8, 3]"""
    depth, columns = weights.shape
    block = block if 0 < block < depth else depth
    count = -(-depth // block)
    wide = np.zeros((count * block, columns), np.float64)
    wide[:depth] = weights
    parts = wide.reshape(count, block, columns)
    if bits == 4:
        at = np.abs(parts).argmax(axis=1, keepdims=True)
        scales, low, high = np.take_along_axis(parts, at, axis=1)[:, 0] / -8, -8, 7
    else:
        scales, low, high = np.abs(parts).max(axis=1) / 127, -127, 127
    scales = scales.astype(weights.dtype)
    scales[scales == 0] = 1
    codes = np.clip(np.rint(parts / scales[:, None].astype(np.float64)), low, high).astype(np.int8)
    return Codes(codes.reshape(-1, columns)[:depth], scales, block)


def lost(weights: np.ndarray, found: Codes) -> float:
    """Norm of what rounding changed, relative to the norm of the weights."""
    whole = float(np.linalg.norm(weights.astype(np.float64)))
    return float(np.linalg.norm(weights.astype(np.float64) - found.values())) / whole if whole else 0.0


class Affine(NamedTuple):
    """The codes of an activation: u8, value = (code - zero) * scale."""

    scale: np.float32
    zero: np.uint8


def affine(low: float, high: float) -> Affine:
    """The codes for values of a range, in which 0 is exact.

    >>> affine(-1.0, 4.1)
    Affine(scale=np.float32(0.02), zero=np.uint8(50))"""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / 255)
    if not scale > 0:
        return Affine(np.float32(1), np.uint8(0))
    return Affine(scale, np.uint8(np.clip(np.rint(-low / float(scale)), 0, 255)))
